"""Measures the parts of a run alone, then the whole, and says what limits it.
"""

import dataclasses

from absl import logging

from scalable_agent.assembly import devices as devices_assembly
from scalable_agent.throughput import bottleneck
from scalable_agent.throughput import loop
from scalable_agent.throughput import machine
from scalable_agent.throughput import parts


def measure(config, seconds):
  """Measures all parts and the whole.

  Args:
    config: A `config.Config`.
    seconds: For each part; the whole takes twice that.

  Returns:
    A dict of what `parts.measure_parts` and `loop.measure_loop` return; `ideal`
    in frames per second; `efficiency`, whole / ideal;
    `environment_utilisation`, whole / environments; `bottleneck`, a sentence;
    and `machine` and `config`.
  """
  figures = parts.measure_parts(config, seconds)
  devices = devices_assembly.choose(config)
  resources = bottleneck.find_resources(config, devices)
  figures['ideal'] = bottleneck.ideal_rate(
      {part: figures[part] for part in resources}, resources)
  logging.info('Measuring the training loop for %g s', 2 * seconds)
  figures.update(loop.measure_loop(config, devices, 2 * seconds))
  figures['efficiency'] = figures['whole'] / figures['ideal']
  figures['environment_utilisation'] = (
      figures['whole'] / figures['environments'])
  figures['machine'] = machine.describe()
  figures['bottleneck'] = bottleneck.advice(
      figures, resources, config.agent, figures['machine']['cores'])
  figures['config'] = dataclasses.asdict(config)
  return figures


def show(figures):
  """Prints what `measure` returns."""
  for name in ('environments', 'inference', 'learner', 'data_path', 'ideal',
               'whole'):
    print(f'{name:24s} {figures[name]:10.0f} frames/s')
  for name in ('efficiency', 'environment_utilisation'):
    print(f'{name:24s} {100 * figures[name]:10.1f} %')
  print(f'{"cores":24s} {figures["cores"]:10.2f} of '
        f'{figures["machine"]["cores"]}')
  print(f'{"memory":24s} {figures["memory_mib"]:10.0f} MiB')
  for name, unit in (('queue_size', 'unrolls'),
                     ('inference_batch', 'environments'),
                     ('policy_lag', 'updates')):
    values = figures[name]
    print(f'{name:24s} {values["mean"]:10.1f} {unit} '
          f'({values["min"]} to {values["max"]})')
  for size, value in figures['inference_by_batch'].items():
    print(f'{"inference, batch " + size:24s} {value:10.0f} frames/s')
  for name, share in figures['times'].items():
    print(f'{name:24s} {100 * share:10.1f} % of the time')
  print(f'What limits it: {figures["bottleneck"]}')
