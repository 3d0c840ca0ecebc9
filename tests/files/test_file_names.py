"""Levels as files."""

import pytest

from scalable_agent.files import file_names


@pytest.mark.parametrize('level_name, expected', [
    ('space_invaders', 'space_invaders'),
    ('gym:ALE/Pong-v5', 'gym_ALE_Pong-v5'),
    ('contributed/dmlab30/rooms_watermaze',
     'contributed_dmlab30_rooms_watermaze'),
    ('synthetic:step_ms=5,std=0.5', 'synthetic_step_ms_5_std_0.5')])
def test_of_level(level_name, expected):
  assert file_names.of_level(level_name) == expected
