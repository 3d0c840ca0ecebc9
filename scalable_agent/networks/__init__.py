"""The agent's networks, as functions of their weights.

What the package calls an agent is an `Agent` or a `ReactorAgent`: these have
the same methods.
"""

from scalable_agent.networks.agent import Agent
from scalable_agent.networks.instructions import hash_instructions
from scalable_agent.networks.lstm import LSTMState
from scalable_agent.networks.reactor import ReactorAgent
from scalable_agent.networks.torsos import choose as choose_torso
from scalable_agent.trajectories import AgentOutput
