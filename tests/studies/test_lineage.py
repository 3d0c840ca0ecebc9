"""Who copied whom in a population."""

import io

import numpy as np
from PIL import Image
import pytest

from scalable_agent.studies import lineage
from scalable_agent.sweeps import evolution
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


def test_the_picture_shows_the_best_member(tmp_path):
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


def test_members_that_have_not_begun_are_drawn(tmp_path):
  logdirs = [str(tmp_path / f'{i}') for i in range(3)]
  lineage.write(tmp_path / 'lineage.png', _RECORDS[:3], logdirs)
  assert (tmp_path / 'lineage.png').exists()


def test_a_damaged_member_is_told(tmp_path):
  logdirs = [trial_runs.write(tmp_path, f'{i}', [1.]) for i in range(3)]
  (tmp_path / '1' / 'config.json').write_text('{')
  with pytest.raises(ValueError, match='config.json'):
    lineage.write(tmp_path / 'lineage.png', _RECORDS, logdirs)
