"""The settings of a run, each declared once, and the `Config` of them all.

    from scalable_agent import config as config_lib

    config = config_lib.resolve({'level_name': 'pong', 'logdir': '/tmp/pong'})

`flags` defines a flag for each setting. Importing this package needs neither
TensorFlow nor absl.
"""

from scalable_agent.config.config import Config
from scalable_agent.config.config import effective_values
from scalable_agent.config.config import names
from scalable_agent.config.config import names_kept
from scalable_agent.config.config import SETTINGS
from scalable_agent.config.resolve import check_given
from scalable_agent.config.resolve import defaults
from scalable_agent.config.resolve import refuse_unknown
from scalable_agent.config.resolve import resolve
from scalable_agent.config.settings import ACTORS
from scalable_agent.config.settings import AGENT
from scalable_agent.config.settings import ConfigError
from scalable_agent.config.settings import IDENTITY
from scalable_agent.config.settings import LEARNERS
from scalable_agent.config.settings import refusal
from scalable_agent.config.settings import REPLAY
from scalable_agent.config.settings import WORKERS
from scalable_agent.config.settings import writing
