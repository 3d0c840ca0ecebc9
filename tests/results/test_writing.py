"""Files of a report."""

from scalable_agent.results import blocks
from scalable_agent.results import writing


def test_every_picture_has_a_file_of_its_own(tmp_path):
  """Also where the names of levels become the same name of a file."""
  levels = ['my_levels/maze', 'my_levels_maze', 'my_levels_maze_2', 'pong',
            'my_levels:maze']
  paths = writing.write_pictures(
      [blocks.Heading('Curves'),
       *(blocks.Picture(level, level.encode()) for level in levels)],
      tmp_path, 'curves')
  assert paths == {
      'my_levels/maze': 'curves/my_levels_maze.png',
      'my_levels_maze': 'curves/my_levels_maze_2.png',
      'my_levels_maze_2': 'curves/my_levels_maze_2_2.png',
      'pong': 'curves/pong.png',
      'my_levels:maze': 'curves/my_levels_maze_3.png'}
  for level, path in paths.items():
    assert (tmp_path / path).read_bytes() == level.encode()
