"""The binary: files, pictures, errors; the page in a browser."""

import csv
import io
import json
import os
import re
import shutil

from absl import flags
from absl.testing import flagsaver
import numpy as np
from PIL import Image
import pytest

from scalable_agent import atari57
from scalable_agent import report
from scalable_agent.results import videos

_CONFIG = dict(
    architecture='impala', network='shallow', use_lstm=False, batch_size=32,
    unroll_length=20, total_environment_frames=2_000_000, learning_rate=6e-4)


def make_run(logdir, episodes, tested=(), **settings):
  """Writes a log directory: rows of frames, level and return, test returns."""
  logdir.mkdir(parents=True)
  if settings:
    (logdir / 'config.json').write_text(
        json.dumps(dict(_CONFIG, logdir=str(logdir), **settings)))
  (logdir / 'episodes.csv').write_text(
      'frames,level,episode_return,episode_frames\n' + ''.join(
          f'{frames},{level},{value},400\n'
          for frames, level, value in episodes))
  if tested:
    (logdir / 'test_scores.json').write_text(json.dumps(dict(
        frames=2_000_000, levels={
            level: dict(episode_returns=returns)
            for level, returns in dict(tested).items()})))
  return str(logdir)


def _games(level, slope, seed=0, num=300):
  rng = np.random.default_rng(seed)
  return [(6000 * i, level, slope * i / num + rng.normal())
          for i in range(1, num + 1)]


def _main(*positional, **values):
  with flagsaver.flagsaver():
    report.main(flags.FLAGS(['report', *positional] + [
        f'--{name}={value}' for name, value in values.items()]))


@pytest.fixture(scope='module')
def written(tmp_path_factory):
  """A report on seeds of pong, an unfinished breakout, and CartPole."""
  root = tmp_path_factory.mktemp('runs')
  for seed in (1, 2):
    make_run(root / f'pong_{seed}', _games('pong', 20, seed), level_name='pong',
             seed=seed, tested={'pong': [18. + seed, 20. + seed]})
  (root / 'pong_1' / 'metrics.jsonl').write_text(
      json.dumps(dict(frames=1_800_000, fps=1000.)) + '\n')
  (root / 'pong_1' / 'videos').mkdir()
  Image.new('L', (160, 210)).save(root / 'pong_1' / 'videos' / 'pong.gif')
  make_run(root / 'breakout', _games('breakout', 300, num=150),
           level_name='breakout', seed=1)
  make_run(root / 'pole', _games('gym:CartPole-v1', 500), seed=1,
           level_name='gym:CartPole-v1', network='vector')
  (root / 'not_a_run').mkdir()
  directory = root / 'report'
  _main(logdirs=f'{root}/*', report_dir=directory)
  return directory


def test_a_film_that_cannot_be_read_is_what_is_named(
    tmp_path, monkeypatch):
  make_run(tmp_path / 'run', _games('pong', 20), level_name='pong')
  # It is gone when it is copied.
  monkeypatch.setattr(videos.os.path, 'isfile', lambda path: True)
  with pytest.raises(SystemExit, match='No such file.*run/videos/pong.gif'):
    _main(logdirs=tmp_path / 'run', report_dir=tmp_path / 'report')


def _rows(directory):
  return list(csv.DictReader(io.StringIO(
      (directory / 'scores.csv').read_text())))


def test_csv_has_every_level_of_every_agent(written):
  rows = {(row['agent'], row['level']): row for row in _rows(written)}
  agents = {agent for agent, _ in rows}
  assert len(agents) == 2
  shallow, vector = sorted(agents)
  assert (shallow, vector) == ('shallow', 'vector')
  assert list(rows) == [(shallow, level) for level in atari57.GAMES] + [
      (vector, 'gym:CartPole-v1')]
  pong = rows[shallow, 'pong']
  assert float(pong['score']) == 20.5
  assert (pong['source'], pong['seeds'], pong['episodes']) == ('test', '2', '4')
  assert float(pong['human_normalized_percent']) == pytest.approx(
      100 * (20.5 + 20.7) / 35.3)
  assert float(pong['IMPALA, deep, experts']) == 20.98
  breakout = rows[shallow, 'breakout']
  assert (breakout['source'], breakout['episodes']) == ('training', '100')
  assert (breakout['frames'], breakout['total_frames']) == ('900000', '2000000')
  alien = rows[shallow, 'alien']
  assert (alien['score'], alien['source']) == ('', 'no run')
  pole = rows[vector, 'gym:CartPole-v1']
  assert (pole['suite'], pole['human']) == ('Gymnasium', '')


def test_markdown_shows_tables_and_pictures(written):
  text = (written / 'report.md').read_text()
  assert re.search(r'\| shallow \|.* \| 2 of 57, incomplete \|', text)
  assert 'test, 4 episodes, 2 seeds, 2M frames' in text
  assert 'training, 100 episodes, 1 seed, 900k frames of 2M, unfinished' in text
  assert '| IMPALA, deep, experts | 191.8 % | 1,592.5 % | 57 of 57 |' in text
  *pictures, pole = re.findall(r'!\[.*\]\((.*)\)', text)
  *pictures, video = pictures
  assert [*pictures, pole] == [
      'curves/breakout.png', 'curves/pong.png', 'curves/pong_by_hours.png',
      'curves/gym_CartPole-v1.png']
  for path in [*pictures, pole]:
    with Image.open(written / path) as image:
      assert image.format == 'PNG' and min(image.size) > 300
  with Image.open(written / video) as image:
    assert image.format == 'GIF'
  _, _, idle = text.partition('## Atari-57: levels without a run')
  assert '| alien | 227.8 |' in idle and '| pong |' not in idle


@pytest.mark.skipif(
    not (shutil.which('chromium') or shutil.which('google-chrome')),
    reason='No Chromium is installed (Debian: apt install chromium).')
def test_the_page_in_a_browser(written):
  """No script fails, nothing is asked of a network, scores are in sight."""
  sync_api = pytest.importorskip('playwright.sync_api')
  errors, requests, sights = [], [], {}
  with sync_api.sync_playwright() as playwright:
    browser = playwright.chromium.launch(
        executable_path=(shutil.which('chromium') or
                         shutil.which('google-chrome')),
        args=['--no-sandbox'])
    page = browser.new_page()
    page.on('pageerror', lambda error: errors.append(str(error)))
    page.on('console', lambda message: errors.append(message.text))
    page.on('request', lambda request: requests.append(request.url))
    url = (written / 'index.html').as_uri()
    page.goto(url)
    page.locator('figure img').last.scroll_into_view_if_needed()
    page.wait_for_function(
        'Array.from(document.images).every(i => i.complete)')
    images = page.evaluate('''Array.from(document.images).map(
        i => [i.alt, i.naturalWidth, i.getBoundingClientRect().width])''')
    cells = page.evaluate('''Array.from(document.querySelectorAll('tr')).map(
        row => Array.from(row.cells).map(cell => cell.innerText))''')
    for width in (1600, 1000, 400):
      page.set_viewport_size(dict(width=width, height=1000))
      sights[width] = page.evaluate('''() => {
          const row = Array.from(document.querySelectorAll('tr')).find(
              row => row.cells[0].innerText == 'pong');
          const curves = Array.from(document.querySelectorAll('.curves img'));
          return [document.documentElement.scrollWidth,
                  row.cells[0].getBoundingClientRect().left,
                  row.cells[1].getBoundingClientRect().right,
                  curves[1].getBoundingClientRect().top -
                  curves[0].getBoundingClientRect().top]}''')
    browser.close()
  assert errors == []
  assert {r for r in requests if not r.startswith('data:')} == {
      url, (written / 'videos' / '0-1-pong.gif').as_uri()}
  assert [alt for alt, _, _ in images] == [
      *(f'Learning curve of {level}' for level in (
          'breakout', 'pong', 'pong by hours')), 'pong: shallow, seed 1',
      'Learning curve of gym:CartPole-v1']
  assert all(natural >= 160 and shown > 100 for _, natural, shown in images)
  for width, (whole, left, right, below) in sights.items():
    # Tables scroll, the page does not.
    assert whole <= width and 0 <= left < right <= width
    assert (below == 0) == (width > 400)
  first = {row[0] for row in cells}
  assert set(atari57.GAMES) | {'gym:CartPole-v1'} <= first
  (pong,) = [row for row in cells if row[0] == 'pong']
  assert pong[1].startswith('20.5 ±') and pong[2] == '116.7 %'
  assert ['IMPALA, deep, experts', '191.8 %', '1,592.5 %', '57 of 57',
          '191.8 %', '957.6 %'] in cells


def test_png_alone(tmp_path, capsys):
  """One panel per level with an episode; no report."""
  logdirs = [make_run(tmp_path / 'a', [(10, 'pong', -21)]),
             make_run(tmp_path / 'b', _games('qbert', 100))]
  path = tmp_path / 'curves.png'
  _main(logdirs=','.join(logdirs), png=path, report_dir=tmp_path / 'report')
  assert capsys.readouterr().out == f'{path}\n'
  with Image.open(path) as image:
    width, height = image.size
    assert width > 2.5 * height
  assert sorted(os.listdir(tmp_path)) == ['a', 'b', 'curves.png']


@pytest.mark.parametrize('values, expected', [
    (dict(), '--logdirs names no log directory'),
    (dict(logdirs='{root}/missing'), 'missing holds no run'),
    (dict(logdirs='{root}/no*'), 'no run is found by'),
    (dict(logdirs='{root}/idle', png='x.png'), 'No episode has finished in'),
    (dict(logdirs='{root}/good', png='/dev/null/x'),
     '--png=/dev/null/x cannot be written: Not a directory.'),
    (dict(logdirs='{root}/good', png='~/x.png'), '--png=~/x.png cannot work: '),
    (dict(logdirs='{root}/good', report_dir='~/x'), '--report_dir=~/x cannot '),
    (dict(logdirs='{root}/good', report_dir='/dev/null/x'),
     '--report_dir=/dev/null/x cannot be written: Not a directory.'),
    (dict(logdirs='{root}/good', report_dir='/dev/null/x', study='best3'),
     '--report_dir=/dev/null/x cannot be written: Not a directory.'),
    (dict(logdirs='{root}/good', png='x.png', study='best3'),
     '--png draws learning curves alone'),
    (dict(logdirs='{root}/broken'), 'config.json is not readable as JSON'),
])
def test_errors_are_one_line(tmp_path, values, expected):
  make_run(tmp_path / 'idle', [], level_name='pong')
  make_run(tmp_path / 'good', [(10, 'pong', -21)], level_name='pong')
  (tmp_path / 'good' / 'sweep.json').write_text(
      json.dumps(dict(variant=[], sample={})))
  make_run(tmp_path / 'broken', [])
  (tmp_path / 'broken' / 'config.json').write_text('{')
  with pytest.raises(SystemExit) as caught:
    _main(**{name: value.format(root=tmp_path)
             for name, value in values.items()})
  assert str(caught.value).startswith('Error: ')
  assert expected in str(caught.value) and '\n' not in str(caught.value)


def test_directories_that_a_shell_has_spelled_out_are_refused(tmp_path):
  with pytest.raises(SystemExit, match='Unexpected arguments: b c'):
    _main('--logdirs=a', 'b', 'c')


def test_a_run_named_twice_counts_once(tmp_path):
  logdir = make_run(tmp_path / 'a', [(10, 'pong', -21)], level_name='pong')
  assert len(report.find_runs([logdir, logdir + '/', f'{tmp_path}/*'])) == 1


def test_a_run_with_two_names_counts_once_by_the_first(tmp_path, monkeypatch):
  logdir = make_run(tmp_path / 'a', [(10, 'pong', -21)], level_name='pong')
  (tmp_path / 'link').symlink_to(logdir)
  monkeypatch.chdir(tmp_path)
  for names in ['a', logdir], [logdir, 'a'], ['link', '*', logdir]:
    (run,) = report.find_runs(names)
    assert run.logdir == names[0]
