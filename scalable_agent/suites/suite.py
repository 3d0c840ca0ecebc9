"""What there is to know of a suite of environments: the record `Suite`."""

import collections
import dataclasses
import typing

Facts = collections.namedtuple('Facts', 'num_actions observation_spec')
Facts.__doc__ = """What is the same in all environments, see `Pool`.

A pool has these attributes too, and may take the place of its facts.
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Suite:
  """A suite. Where a function takes `config`, that is a `config.Config`.

  Attributes:
    name: As in `Config.suite`.
    names: A tuple of level names. A name that is similar to one of them, and
      that no suite has, is refused as a typing error.
    has: A function of a level name that says whether it is one of the suite's.
    levels: A function of a level name and of whether they are to be tested. It
      returns the levels that the name stands for, a list, as they are logged.
    defaults: A function of a level name that returns the settings whose default
      is another one there, a dict of name to value.
    defaults_of_reactor: A dict of the settings whose default is another one
      with Reactor, beside those of all suites.
    title: What a report calls its levels of which nothing is published.
    adapted: A tuple of the hyperparameters that a population adapts (paper,
      Table D.1 and Appendix F, Table G.1).
    scores: A function of a level name that returns the scores of all its levels
      together, a dict of name to a function of a dict of level to returns. Each
      returns percent, or raises ValueError if a level has no returns.
    released_score_names: A function of a level name that returns what the
      released code calls those scores in TensorBoard, a dict of our name to
      theirs.
    refuse: A function of `config` that returns None, or what cannot work on
      the suite: a setting's name, and a clause that says why.
    has_actors_by_cores: Whether the number of environments, where it is not
      given, follows from the cores of the machine.
    has_fixed_batches: Whether a pool hands out `maximum_batch_size`
      environments at a time and never fewer.
    has_stacked_frames: A function of `config` that says whether an observation
      is a stack of the last frames, as `frame_stacks` packs it.
    only_waits: Whether environments take time and no core.
    num_workers: A function of the environments in a pool, of the levels that it
      keeps apart, of the threads or processes that the user wants for it (0 for
      any number), and of the cores there are for it. It returns the number of
      threads or processes.
    make_pool: A function of `config`, of the levels that the environments of
      one pool play, a list as `levels` returns them, of a `PoolLayout` and of
      the seed of the first environment. It returns an `environments.Pool` or
      raises `PoolError`.
    find_facts: A function of `config` that returns `Facts` or raises
      `PoolError`. None if an environment has to be made to know them.
    find_actions: A function of `config` that returns what its actions are, as
      `suites.find_actions`, or raises `PoolError`. None if they have no names.
    make_shown_pool: A function of `config` and a seed, see
      `suites.make_shown_pool`. None if what an environment observes is what a
      person sees.
  """
  name: str
  names: tuple = ()
  has: typing.Callable
  levels: typing.Callable = lambda level_name, is_test: [level_name]
  defaults: typing.Callable
  defaults_of_reactor: dict = dataclasses.field(default_factory=dict)
  title: str = 'Other levels'
  adapted: tuple = ('entropy_cost', 'learning_rate', 'epsilon')
  scores: typing.Callable = lambda level_name: {}
  released_score_names: typing.Callable = lambda level_name: {}
  refuse: typing.Callable = lambda config: None
  has_actors_by_cores: bool = True
  has_fixed_batches: bool = False
  has_stacked_frames: typing.Callable = lambda config: False
  only_waits: bool = False
  num_workers: typing.Callable
  make_pool: typing.Callable
  find_facts: typing.Callable = None
  find_actions: typing.Callable = None
  make_shown_pool: typing.Callable = None
