"""A configuration's actors."""

from scalable_agent import actor


def create_actor(config, agent, level_names, policy, put_unroll, report_episode,
                 times, **options):
  """Makes an actor that acts with an agent's policy.

  Args:
    config: A `config.Config`.
    agent: An agent of `networks`.
    level_names: A list of N level names, of the environments to act in.
    policy: As for `actor.Actor`, and so is what follows.
    put_unroll: See there.
    report_episode: See there.
    times: A `timing.StageTimes`.
    **options: Keyword arguments of `actor.Actor`.

  Returns:
    An `actor.Actor`.
  """
  return actor.Actor(
      level_names, agent.num_actions, policy,
      agent.initial_state(len(level_names)), config.unroll_length,
      config.num_action_repeats, put_unroll, report_episode, times, **options)
