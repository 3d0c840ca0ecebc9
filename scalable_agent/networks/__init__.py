"""The agent's networks, as functions of their weights."""

from scalable_agent.networks.agent import Agent
from scalable_agent.networks.agent import CORE_SIZE
from scalable_agent.networks.instructions import hash_instructions
from scalable_agent.networks.instructions import INSTRUCTION_EMBEDDING_SIZE
from scalable_agent.networks.instructions import INSTRUCTION_LSTM_SIZE
from scalable_agent.networks.lstm import lstm_gates
from scalable_agent.networks.lstm import lstm_step
from scalable_agent.networks.lstm import LSTMState
from scalable_agent.networks.reactor import ReactorAgent
from scalable_agent.networks.torsos import choose as choose_torso
from scalable_agent.networks.torsos import TORSOS
from scalable_agent.trajectories import AgentOutput
