"""IMPALA (Espeholt et al., 2018) for TensorFlow 2.

Importing the package imports nothing else: environment worker processes load
`scalable_agent.environments` without paying for TensorFlow.
"""

__version__ = '0.1.0'
