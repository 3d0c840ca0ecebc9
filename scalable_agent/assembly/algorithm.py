"""What an algorithm takes of a configuration: the record `Algorithm`."""

import dataclasses
import typing


@dataclasses.dataclass(frozen=True, kw_only=True)
class Algorithm:
  """What a learner has that is its algorithm's. `config` is a `config.Config`.

  Attributes:
    create_loss_fn: A function of `config` and the agent that returns the loss
      function of a `learner.Learner`.
    create_optimizer: A function of `config` that returns the optimizer.
    create_source: A function that returns what batches are taken from, with
      the arguments of `assembly.learner.create_source`.
    has_target: Whether the loss needs target weights.
  """
  create_loss_fn: typing.Callable
  create_optimizer: typing.Callable
  create_source: typing.Callable
  has_target: bool
