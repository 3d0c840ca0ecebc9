"""Installs scalable_agent."""

import pathlib
import re

import setuptools

_ROOT = pathlib.Path(__file__).parent
_VERSION = re.search(
    r"__version__ = '(.+)'",
    (_ROOT / 'scalable_agent' / '__init__.py').read_text()).group(1)

setuptools.setup(
    name='scalable_agent',
    version=_VERSION,
    description='IMPALA for TensorFlow 2: importance weighted actor-learner '
                'architectures on Atari, Gymnasium and DeepMind Lab.',
    long_description=(_ROOT / 'README.md').read_text(),
    long_description_content_type='text/markdown',
    license='Apache-2.0',
    license_files=['LICENSE'],
    packages=setuptools.find_packages(include=['scalable_agent*']),
    python_requires='>=3.10',
    # DeepMind Lab's package, deepmind-lab, is not on PyPI: its users build it,
    # see the README.
    install_requires=[
        'absl-py>=2.1',
        'ale-py>=0.12',
        'cityhash>=0.4.8',
        'dm-tree>=0.1.9',
        'grpcio>=1.62',
        'gymnasium>=1.1',
        'matplotlib>=3.8',
        'numpy>=1.26',
        'pillow>=10',
        'psutil>=5.9',
        'rich>=13',
        # TensorFlow Probability imports distutils, which Python 3.12 and newer
        # get from setuptools.
        'setuptools>=65',
        'tensorboard>=2.19',
        'tensorflow>=2.19',
        'tensorflow-probability>=0.25',
        'tf_keras>=2.19',
    ],
    extras_require={
        'gpu': ['tensorflow[and-cuda]'],
        'test': ['cryptography>=42', 'hypothesis>=6', 'minatar>=1.0.15',
                 'playwright>=1.40', 'pytest>=8', 'pytest-xdist>=3.7',
                 'safetensors>=0.4'],
    },
    classifiers=[
        'Development Status :: 4 - Beta',
        'Intended Audience :: Science/Research',
        'License :: OSI Approved :: Apache Software License',
        'Operating System :: POSIX :: Linux',
        'Programming Language :: Python :: 3',
        'Programming Language :: Python :: 3.10',
        'Programming Language :: Python :: 3.11',
        'Programming Language :: Python :: 3.12',
        'Programming Language :: Python :: 3.13',
        'Topic :: Scientific/Engineering :: Artificial Intelligence',
    ])
