"""The mark of a run of a sweep."""

import json

import pytest

from scalable_agent import config as config_lib
from scalable_agent.studies import sweep_file
from tests import failing_files

_VARIANT, _SAMPLE = [{'policy_lag': 10, 'width': 84}], {'epsilon': .01}


def test_what_is_written_is_read(tmp_path):
  for seed, expected in (
      (3, {'sweep_seed': 3}), (None, {}), (4, {'sweep_seed': 4})):
    sweep_file.write(tmp_path, _VARIANT, _SAMPLE, seed)
    assert sweep_file.read(tmp_path) == dict(
        expected, variant=_VARIANT, sample=_SAMPLE)


def test_what_says_the_same_is_left_alone(tmp_path):
  path = tmp_path / 'sweep.json'
  text = json.dumps(dict(sample=_SAMPLE, variant=_VARIANT))
  path.write_text(text)
  sweep_file.write(tmp_path, _VARIANT, _SAMPLE)
  assert path.read_text() == text
  sweep_file.write(tmp_path, _VARIANT, {})
  assert json.loads(path.read_text()) == dict(variant=_VARIANT, sample={})


def test_other_directories_have_none(tmp_path):
  (tmp_path / 'file').touch()
  for name in '', 'missing', 'file':
    assert sweep_file.read(tmp_path / name) is None


@pytest.mark.parametrize('text', [
    '{', '{}', '[]', '{"variant": 3, "sample": {}}', '\xff', '[' * 100_000,
    '{"variant": []}', '{"variant": [], "sample": []}',
    '{"variant": [[]], "sample": {}}',
    '{"variant": [{"a": []}], "sample": {}}',
    '{"variant": [], "sample": {"a": {}}}',
    '{"variant": [], "sample": {}, "sweep_seed": "1"}'])
def test_damage_is_told_in_one_line_and_not_written_over(tmp_path, text):
  path = tmp_path / 'sweep.json'
  path.write_text(text, encoding='latin-1')
  for use in (sweep_file.read,
              lambda logdir: sweep_file.write(logdir, _VARIANT, _SAMPLE)):
    with pytest.raises(config_lib.ConfigError) as error:
      use(tmp_path)
    assert str(error.value).startswith(f'{path} cannot be read (')
    assert '\n' not in str(error.value)
    assert not isinstance(error.value.__cause__, OSError)
  assert path.read_text(encoding='latin-1') == text


def test_what_cannot_be_read_now_says_so_by_its_cause(tmp_path, monkeypatch):
  """A sweep then tries the run again."""
  sweep_file.write(tmp_path, _VARIANT, _SAMPLE)
  with monkeypatch.context() as patched:
    failing_files.fail(patched, 'sweep.json')
    with pytest.raises(config_lib.ConfigError, match='sweep.json cannot be '
                       'read .*Input/output error.*Repair it') as error:
      sweep_file.read(tmp_path)
  assert isinstance(error.value.__cause__, OSError)
  assert sweep_file.read(tmp_path)
