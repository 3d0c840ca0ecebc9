"""A few rounds of the attacks on real runs; `tests.chaos.run` has them all."""

import os
import random

import pytest

from tests import preloaded
from tests.chaos import arena as arena_lib
from tests.chaos import program as program_lib
from tests.chaos import rounds
from tests.chaos import run

_KINDS = {name: kind for name, kind, _ in rounds.KINDS}


def _start_process(arguments, stderr):
  return preloaded.Popen(
      'scalable_agent.experiment', arguments, '/',
      f'/proc/{os.getpid()}/fd/{stderr}', program_lib.environ())


@pytest.fixture(scope='module', name='prepared')
def _prepared(tmp_path_factory):
  """An arena, and the violations of the run that began its log directory."""
  with pytest.MonkeyPatch.context() as monkeypatch:
    monkeypatch.setattr(program_lib, 'start_process', _start_process)
    arena = arena_lib.Arena(tmp_path_factory.mktemp('chaos'))
    arena.prepare()
    yield arena, arena.found


def test_a_new_run_breaks_no_promise(prepared):
  _, found = prepared
  assert found == []


@pytest.mark.parametrize('name, seed', [
    ('kill_in_save', 0),
    ('signal_twice', 2),  # SIGTERM and SIGTERM, 42 ms apart.
    ('newest', 112),  # Two of three are damaged, and the file `checkpoint`.
    ('all_damaged', 5),
    ('disk_full', 2),  # For 2.4 s.
    ('second', 0),
    ('replay_job', 25)])  # Killed, started again, stopped for 1.4 s.
def test_a_round_breaks_no_promise(prepared, name, seed):
  arena, _ = prepared
  assert run.run_round(arena, name, _KINDS[name], seed) == []


def test_a_round_that_breaks_promises_is_told(tmp_path, capsys, monkeypatch):
  """With its seed, kind, table and evidence, and with exit code 1."""

  class Arena(arena_lib.Arena):
    """Has no experiment to start."""

    is_prepared = True

    def prepare(self):
      pass

    def reset(self):
      os.makedirs(self.logdir, exist_ok=True)

  def bad(arena, rng):
    assert rng.random() == random.Random(7).random()
    arena.reset()
    arena.errors.append('its words')
    arena.violated('some rule', 'was broken')
    return 'did this'

  def worse(arena, unused_rng):
    os.remove(arena.logdir + '/none')

  monkeypatch.setattr(arena_lib, 'Arena', Arena)
  monkeypatch.setattr(rounds, 'KINDS', (
      ('good', lambda arena, rng: 'well', 1), ('bad', bad, 1),
      ('worse', worse, 1)))
  start = lambda kind: run.main([
      '--rounds=1', '--seed=7', f'--only={kind}', f'--dir={tmp_path / kind}'])
  assert start('good') == 0
  assert start('bad') == 1
  text = capsys.readouterr().out
  assert 'did this' in text and 'some rule: was broken' in text
  assert 'some rule: 1, seeds 7' in text
  kept = tmp_path / 'bad' / 'violations' / 'seed-7-bad'
  assert (kept / 'stderr-0').read_text() == 'its words'
  assert (kept / 'logdir').is_dir()
  # A round that cannot be carried out is no round that kept its promises.
  assert start('worse') == 1
  assert 'FileNotFoundError' in capsys.readouterr().out
