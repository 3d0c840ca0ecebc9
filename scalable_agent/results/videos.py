"""The videos of test episodes that runs have."""

import os

from scalable_agent.files import file_names
from scalable_agent.results import blocks
from scalable_agent.results import runs as runs_lib


def find(agents, level_of):
  """Finds videos.

  Args:
    agents: A dict of name to a list of `runs.Run`s.
    level_of: A function of a level, as it is trained, that returns its name in
      the report, or None to leave its videos out.

  Returns:
    A list of `blocks.Video`s, by level and agent.
  """
  found = []
  for i, (agent, agent_runs) in enumerate(agents.items()):
    for j, run in enumerate(agent_runs):
      for name in runs_lib.levels_of(run):
        source = file_names.video(
            os.path.join(run.logdir, file_names.VIDEOS), name)
        level = level_of(name)
        if level is None or not os.path.isfile(source):
          continue
        seed = run.config.get('seed')
        caption = f'{level}: {agent}' + (
            '' if seed is None else f', seed {seed}')
        found.append((level, i, j, blocks.Video(
            caption, source,
            f'{file_names.VIDEOS}/{i}-{j}-{os.path.basename(source)}')))
  return [video for *_, video in sorted(found)]
