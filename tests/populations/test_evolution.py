"""The decisions of a population, and the file that keeps them."""

import json
import math

import numpy as np
import pytest

from scalable_agent.config import ConfigError
from scalable_agent.populations import evolution

_PARAMETERS = dict(entropy_cost=1e-3, learning_rate=1e-4, epsilon=1e-5)


@pytest.mark.parametrize('frames, num_episodes, expected', [
    (20_000_000, 5000, True), (19_999_999, 10 ** 6, False),
    (10 ** 9, 4999, False)])
def test_no_evolution_before_burn_in_and_episodes(
    frames, num_episodes, expected):
  assert evolution.is_ready(frames, num_episodes, 20_000_000, 5000) == expected


@pytest.mark.parametrize('other, expected', [
    (45.1, True), (44.9, False), (45., False), (-45.1, False), (None, False)])
def test_more_than_five_points_are_copied(other, expected):
  assert evolution.is_better(40., other) == expected


def test_points_are_absolute():
  assert not evolution.is_better(10., 14.)
  assert evolution.is_better(-50., -44.)


def test_another_member_is_drawn_uniformly():
  rng = np.random.default_rng(0)
  drawn = np.bincount(
      [evolution.draw_other(2, 5, rng) for _ in range(4000)], minlength=5)
  assert drawn[2] == 0
  assert np.all(np.abs(drawn[[0, 1, 3, 4]] - 1000) < 4 * np.sqrt(1000))
  assert {evolution.draw_other(0, 2, rng) for _ in range(9)} == {1}


def test_a_third_of_the_parameters_is_changed_without_drift():
  """Each by 1.2 or its inverse, independently: the logarithm stays at 0."""
  rng = np.random.default_rng(0)
  num = 100_000
  steps = np.array([
      [math.log(after / _PARAMETERS[name]) / math.log(1.2)
       for name, after in evolution.perturb(_PARAMETERS, rng).items()]
      for _ in range(num)])
  np.testing.assert_allclose(steps, np.round(steps), atol=1e-6)
  assert set(np.round(steps).ravel()) == {-1., 0., 1.}
  error = np.sqrt(.33 * .67 / num)
  assert np.all(np.abs(np.mean(np.abs(steps) > .5, axis=0) - .33) < 4 * error)
  assert np.all(np.abs(np.mean(steps, axis=0)) < 4 * np.sqrt(.33 / num))
  # Neither whether one is changed nor which way says anything of the others.
  for each in np.abs(steps), steps:
    correlations = np.corrcoef(each.T)
    assert np.all(np.abs(correlations - np.eye(3)) < 4 / np.sqrt(num))


def _record(member=0, frames=0, **changes):
  return evolution.start(member, _PARAMETERS)._replace(
      frames=frames, **changes)


def test_history_is_kept(tmp_path):
  path = tmp_path / 'evolution.jsonl'
  history = evolution.History(path)
  assert not history.records and not path.exists()
  history.add(_record(), _record(1))
  history.add(_record(1, 100, score=1.5, drawn=0, drawn_score=7., donor=0,
                      donor_frames=80))
  history.add(_record(1, 200, score=1., drawn=0))
  again = evolution.History(path)
  assert again.records == history.records
  assert [record.frames for record in again.of(1)] == [0, 100, 200]
  assert again.last(1).frames == 200 and again.last_copy_frames(1) == 100
  assert again.last(0).frames == 0 and again.last_copy_frames(0) == 0
  assert json.loads(path.read_text().splitlines()[2])['drawn_score'] == 7.


def test_a_file_of_an_earlier_version_names_no_donor(tmp_path):
  path = tmp_path / 'evolution.jsonl'
  records = [_record(0), _record(0, 60, drawn=2),
             _record(0, 90, drawn=2, donor=2, donor_frames=80)]
  for record in records:
    fields = record._asdict()
    del fields['donor']
    with open(path, 'a') as f:
      f.write(json.dumps(fields) + '\n')
  assert evolution.History(path).records == records


def test_what_cannot_be_written_has_not_happened(tmp_path):
  history = evolution.History(tmp_path / 'gone' / 'evolution.jsonl')
  with pytest.raises(OSError):
    history.add(_record())
  assert not history.records


@pytest.mark.parametrize('text', [
    '{', '[]\n', '{"member": 0}\n', '\xff',
    json.dumps(_record(member=-1)._asdict()),
    json.dumps(_record(parameters=3)._asdict())])
def test_a_damaged_file_is_refused_in_one_line(tmp_path, text):
  path = tmp_path / 'evolution.jsonl'
  path.write_text(text, encoding='latin-1')
  with pytest.raises(ConfigError, match='cannot be read') as error:
    evolution.History(path)
  assert '\n' not in str(error.value)


def test_an_evolution_has_random_numbers_of_its_own():
  draw = lambda *key: evolution.generator(*key).random()
  assert draw(1, 2, 3) == draw(1, 2, 3)
  assert len({draw(1, 2, 3), draw(2, 2, 3), draw(1, 3, 3), draw(1, 2, 4)}) == 4
