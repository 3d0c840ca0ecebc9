from scalable_agent import dmlab30
from scalable_agent import score_table


def _scores(level, mean, error=None):
  return {level: dict(
      mean=mean, standard_error=error,
      human_normalized_score=score_table.human_normalized_score(level, mean))}


def test_dmlab30_beside_table_b1():
  lines = score_table.lines(dict(
      _scores('rooms_watermaze', 29.0325, 1.25),
      **_scores('language_execute_random_task', -5.913)))
  assert 'Table B.1' in lines[0]
  assert lines[1].split() == [
      'level', 'mean', 'error', '%', 'human', 'random', 'human', 'IMPALA,',
      'experts', 'IMPALA,', 'multi-task']
  assert lines[2].split() == [
      'rooms_watermaze', '29.0', '1.2', '50.0', '4.1', '54.0', '26.9', '31.1']
  assert lines[3].split() == [
      'language_execute_random_task', '-5.9', '-', '0.0', '-5.9', '254.1',
      '-49.9', '66.8']
  assert len({len(line) for line in lines[1:]}) == 1


def test_every_level_has_a_line():
  levels = {}
  for level in dmlab30.LEVEL_MAPPING.values():
    levels.update(_scores(level, 1.))
  lines = score_table.lines(levels)
  assert [line.split()[0] for line in lines[2:]] == list(levels)


def test_training_levels_are_beside_what_they_are_tested_on():
  (line,) = score_table.lines(
      _scores('rooms_collect_good_objects_train', 10.))[2:]
  assert line.split()[3] == '100.0'


def test_nothing_without_published_scores():
  assert score_table.lines(_scores('gym:CartPole-v1', 500.)) == []
  assert score_table.human_normalized_score('gym:CartPole-v1', 500.) is None


def test_atari():
  lines = score_table.lines(_scores('pong', 14.6))
  assert 'Table C.1' in lines[0]
  assert lines[2].split()[:4] == ['pong', '14.6', '-', '100.0']
