"""Who copied whom in a population."""

import io

from matplotlib import figure as figure_lib
import numpy as np
from PIL import Image
import pytest

from scalable_agent import dmlab30
from scalable_agent.populations import evolution
from scalable_agent.populations import lineage
from tests.studies import trial_runs


def _record(member, frames, donor=None, donor_frames=None, rate=1., drawn=None):
  drawn = donor if drawn is None else drawn
  return evolution.Record(member, frames, 1., drawn, 2., donor, donor_frames,
                          dict(learning_rate=rate))


# 2 copies 1, which then copies 0; 2 has what 1 was before.
_RECORDS = [_record(0, 0), _record(1, 0), _record(2, 0),
            _record(2, 100, 1, 90), _record(1, 120, 0, 110),
            _record(0, 130, drawn=2), _record(2, 300, 1, 250, rate=2.)]


@pytest.mark.parametrize('member, frames, expected', [
    (0, 400, [(0, 0, 400)]),
    (1, 400, [(0, 0, 110), (1, 120, 400)]),
    (2, 290, [(1, 0, 90), (2, 100, 290)]),
    (2, 400, [(0, 0, 110), (1, 120, 250), (2, 300, 400)]),
    # What is copied is not saved yet.
    (2, 300, [(1, 0, 90), (2, 100, 300)])])
def test_ancestry_goes_back_through_copies(member, frames, expected):
  assert lineage.ancestry(_RECORDS, member, frames) == expected


def test_what_a_donor_copied_later_is_not_inherited():
  records = [_record(0, 0), _record(1, 0), _record(1, 100, 0, 80),
             _record(0, 90, 1, 120)]
  assert lineage.ancestry(records, 1, 130) == [(0, 0, 80), (1, 100, 130)]


@pytest.mark.parametrize('finals, best', [
    ((1., 3., 2.), 1), ((None, 1., 2.), 2), ((-1., None, -2.), 0)])
def test_the_way_to_the_best_member_is_shown(
    tmp_path, monkeypatch, finals, best):
  shown = []
  monkeypatch.setattr(
      lineage, '_draw_lanes',
      lambda unused_axis, unused_records, unused_frames, ancestors:
      shown.append(ancestors))
  lineage.draw(_RECORDS, [
      trial_runs.write(tmp_path, f'{i}', [] if final is None else [final] * 20,
                       total=400)
      for i, final in enumerate(finals)])
  assert shown == [lineage.ancestry(_RECORDS, best, 400)]


def test_the_picture_shows_what_parameters_were(tmp_path):
  logdirs = [trial_runs.write(tmp_path, f'{i}', [float(i)] * 20, total=400)
             for i in range(3)]
  pictures = []
  for rate in (1., 50.):
    records = _RECORDS[:-1] + [_record(2, 300, 1, 250, rate)]
    lineage.write(tmp_path / 'lineage.png', records, logdirs)
    pictures.append(np.array(Image.open(
        io.BytesIO((tmp_path / 'lineage.png').read_bytes()))).astype(int))
  assert pictures[0].std() > 10
  assert not np.array_equal(*pictures)


def _drawn_returns(logdirs, ancestors):
  """The lines that show returns, and what their axis is called."""
  axis = figure_lib.Figure().subplots()
  lineage._draw_returns(axis, lineage._read(logdirs), ancestors)
  return [line.get_xydata() for line in axis.get_lines()], axis.get_ylabel()


def test_of_a_suite_the_score_is_drawn_and_not_the_returns_on_each_level(
    tmp_path):
  """One curve of a member, however many levels there are."""
  human = dmlab30.HUMAN_SCORES
  logdirs = []
  for factor in (.5, 2.):
    # Each level ends 40 episodes, all at human returns from the middle on.
    returns = [(level, (factor if i >= 20 else 0.) * human[name])
               for i in range(40)
               for level, name in dmlab30.LEVEL_MAPPING.items()]
    logdirs.append(trial_runs.write(
        tmp_path, f'{factor}', returns, level='dmlab30', total=120_000))
  logdirs.append(str(tmp_path / 'not_begun'))
  lines, label = _drawn_returns(logdirs, [lineage.Segment(1, 0, 60_000),
                                          lineage.Segment(0, 63_000, 90_000)])
  assert label == 'capped human-normalised score (%)'
  assert len(lines) == 4
  np.testing.assert_allclose(lines[1][:, 0], np.arange(6000, 120_001, 6000))
  assert (lines[1][:10, 1] < 1.).all() and (lines[1][10:, 1] > 99.).all()
  assert (lines[0][10:, 1] < 60.).all()
  # The ancestors' parts of these.
  np.testing.assert_array_equal(lines[2], lines[1][:10])
  np.testing.assert_array_equal(lines[3][1:], lines[0][11:15])
  assert lines[3][0, 0] == 66_000


def test_of_levels_that_are_no_suite_each_is_drawn(tmp_path):
  logdir = trial_runs.write(
      tmp_path, 'a', [(level, value) for value in range(10)
                      for level in ('one', 'two')], total=400)
  lines, label = _drawn_returns([logdir], [lineage.Segment(0, 200, 400)])
  assert label == 'return of an episode'
  assert [len(line) for line in lines] == [10, 10, 5, 5]


def test_members_that_have_not_begun_are_drawn(tmp_path):
  logdirs = [str(tmp_path / f'{i}') for i in range(3)]
  lineage.write(tmp_path / 'lineage.png', _RECORDS[:3], logdirs)
  assert (tmp_path / 'lineage.png').exists()


def test_a_damaged_member_is_told(tmp_path):
  logdirs = [trial_runs.write(tmp_path, f'{i}', [1.]) for i in range(3)]
  (tmp_path / '1' / 'config.json').write_text('{')
  with pytest.raises(ValueError, match='config.json'):
    lineage.write(tmp_path / 'lineage.png', _RECORDS, logdirs)
