"""Stands in for a training run, without weights: what matters to a population.

    python fake_run.py --logdir=... --total=... --skill=... [--warm_start=...]

Its checkpoints hold where its weights come from: `skill`, which is the return
of its episodes, and `copies`, which names each start from other weights. Its
files are those of a run, and it ends as a run does: at SIGTERM it saves. With
--evaluation_seconds it plays an evaluation at its end.
"""

import argparse
import glob
import json
import os
import re
import signal
import sys
import time

_FRAMES_PER_EPISODE = 10


def _write(path, text):
  with open(f'{path}.new', 'w') as f:
    f.write(text)
  os.replace(f'{path}.new', path)


def _newest(logdir):
  found = [int(re.search(r'-(\d+)\.index', path).group(1))
           for path in glob.glob(f'{glob.escape(logdir)}/ckpt-*.index')]
  return max(found, default=None)


def main():
  parser = argparse.ArgumentParser()
  for name, kind in (('logdir', str), ('total', int), ('skill', float),
                     ('secs_per_episode', float), ('start_seconds', float),
                     ('evaluation_seconds', float), ('warm_start', str)):
    parser.add_argument(f'--{name}', type=kind, default=None)
  args, _ = parser.parse_known_args()
  time.sleep(args.start_seconds or 0.)
  stopped = []
  signal.signal(signal.SIGTERM, lambda *unused: stopped.append(1))
  frames = _newest(args.logdir)
  if frames is None:
    frames, weights = 0, dict(skill=args.skill, copies=[])
  else:
    with open(f'{args.logdir}/ckpt-{frames}.index') as f:
      weights = json.load(f)
  if args.warm_start:
    with open(f'{args.warm_start}.index') as f:
      weights = json.load(f)
    donor_frames = int(args.warm_start.rpartition('-')[2])
    weights['copies'].append([args.logdir, frames, donor_frames])
    open(f'{args.logdir}/has_warm_started', 'w').close()

  episodes = f'{args.logdir}/episodes.csv'
  lines = ['frames,level,episode_return,episode_frames\n']
  if os.path.exists(episodes):
    with open(episodes) as f:
      lines += [line for line in f.readlines()[1:]
                if int(line.split(',')[0]) <= frames]
  _write(episodes, ''.join(lines))
  metrics = f'{args.logdir}/metrics.jsonl'
  _write(metrics, '')
  with open(episodes, 'a') as f, open(metrics, 'a') as m:
    while frames < args.total and not stopped:
      time.sleep(args.secs_per_episode)
      frames += _FRAMES_PER_EPISODE
      f.write(f'{frames},level,{weights["skill"]},{_FRAMES_PER_EPISODE}\n')
      f.flush()
      m.write(f'{{"frames": {frames}}}\n')
      m.flush()
  _write(f'{args.logdir}/ckpt-{frames}.data-00000-of-00001', '')
  _write(f'{args.logdir}/ckpt-{frames}.index', json.dumps(weights))
  if args.evaluation_seconds and frames >= args.total:
    end = time.monotonic() + args.evaluation_seconds
    while time.monotonic() < end and not stopped:
      time.sleep(.01)
    if not stopped:
      _write(f'{args.logdir}/evaluations.csv',
             f'{lines[0]}{frames},level,1,10\n')
  sys.exit(0)


if __name__ == '__main__':
  main()
