"""The 30 levels of DMLab-30 and their human-normalised scores."""

import collections

import numpy as np

# Of the names that DeepMind Lab knows the levels by.
LEVEL_PREFIX = 'contributed/dmlab30/'

# Trained on, and scored on: two levels are tested on objects that were held
# out. The order is that of the released code.
LEVEL_MAPPING = collections.OrderedDict(
    (level, level.replace('_train', '_test')) for level in (
        'rooms_collect_good_objects_train',
        'rooms_exploit_deferred_effects_train',
        'rooms_select_nonmatching_object',
        'rooms_watermaze',
        'rooms_keys_doors_puzzle',
        'language_select_described_object',
        'language_select_located_object',
        'language_execute_random_task',
        'language_answer_quantitative_question',
        'lasertag_one_opponent_small',
        'lasertag_three_opponents_small',
        'lasertag_one_opponent_large',
        'lasertag_three_opponents_large',
        'natlab_fixed_large_map',
        'natlab_varying_map_regrowth',
        'natlab_varying_map_randomized',
        'skymaze_irreversible_path_hard',
        'skymaze_irreversible_path_varied',
        'psychlab_arbitrary_visuomotor_mapping',
        'psychlab_continuous_recognition',
        'psychlab_sequential_comparison',
        'psychlab_visual_search',
        'explore_object_locations_small',
        'explore_object_locations_large',
        'explore_obstructed_goals_small',
        'explore_obstructed_goals_large',
        'explore_goal_locations_small',
        'explore_goal_locations_large',
        'explore_object_rewards_few',
        'explore_object_rewards_many',
    ))

# Every name a level of the suite goes by, in training or testing.
ALL_LEVELS = frozenset(LEVEL_MAPPING) | frozenset(LEVEL_MAPPING.values())

# Scores by test level as in the released code. Table B.1 prints the same with
# less precision, except that small and large lasertag levels are exchanged.
HUMAN_SCORES = {
    'rooms_collect_good_objects_test': 10.0,
    'rooms_exploit_deferred_effects_test': 85.65,
    'rooms_select_nonmatching_object': 65.9,
    'rooms_watermaze': 54.0,
    'rooms_keys_doors_puzzle': 53.8,
    'language_select_described_object': 389.5,
    'language_select_located_object': 280.7,
    'language_execute_random_task': 254.05,
    'language_answer_quantitative_question': 184.5,
    'lasertag_one_opponent_small': 12.65,
    'lasertag_three_opponents_small': 18.55,
    'lasertag_one_opponent_large': 18.6,
    'lasertag_three_opponents_large': 31.5,
    'natlab_fixed_large_map': 36.9,
    'natlab_varying_map_regrowth': 24.45,
    'natlab_varying_map_randomized': 42.35,
    'skymaze_irreversible_path_hard': 100.0,
    'skymaze_irreversible_path_varied': 100.0,
    'psychlab_arbitrary_visuomotor_mapping': 58.75,
    'psychlab_continuous_recognition': 58.3,
    'psychlab_sequential_comparison': 39.5,
    'psychlab_visual_search': 78.5,
    'explore_object_locations_small': 74.45,
    'explore_object_locations_large': 65.65,
    'explore_obstructed_goals_small': 206.0,
    'explore_obstructed_goals_large': 119.5,
    'explore_goal_locations_small': 267.5,
    'explore_goal_locations_large': 194.5,
    'explore_object_rewards_few': 77.7,
    'explore_object_rewards_many': 106.7,
}

RANDOM_SCORES = {
    'rooms_collect_good_objects_test': 0.073,
    'rooms_exploit_deferred_effects_test': 8.501,
    'rooms_select_nonmatching_object': 0.312,
    'rooms_watermaze': 4.065,
    'rooms_keys_doors_puzzle': 4.135,
    'language_select_described_object': -0.07,
    'language_select_located_object': 1.929,
    'language_execute_random_task': -5.913,
    'language_answer_quantitative_question': -0.33,
    'lasertag_one_opponent_small': -0.224,
    'lasertag_three_opponents_small': -0.214,
    'lasertag_one_opponent_large': -0.083,
    'lasertag_three_opponents_large': -0.102,
    'natlab_fixed_large_map': 2.173,
    'natlab_varying_map_regrowth': 2.989,
    'natlab_varying_map_randomized': 7.346,
    'skymaze_irreversible_path_hard': 0.1,
    'skymaze_irreversible_path_varied': 14.4,
    'psychlab_arbitrary_visuomotor_mapping': 0.163,
    'psychlab_continuous_recognition': 0.224,
    'psychlab_sequential_comparison': 0.129,
    'psychlab_visual_search': 0.085,
    'explore_object_locations_small': 3.575,
    'explore_object_locations_large': 4.673,
    'explore_obstructed_goals_small': 6.76,
    'explore_obstructed_goals_large': 2.61,
    'explore_goal_locations_small': 7.66,
    'explore_goal_locations_large': 3.14,
    'explore_object_rewards_few': 2.073,
    'explore_object_rewards_many': 2.438,
}

PublishedScores = collections.namedtuple(
    'PublishedScores', 'human random experts impala')
PublishedScores.__doc__ = """A row of the paper's Table B.1: mean test returns.

  human: Of people.
  random: Of uniformly random actions.
  experts: Of IMPALA agents trained on the one level.
  impala: Of the one IMPALA agent trained on all levels.
"""

# Table B.1 of the paper, by test level.
TABLE_B1 = {
    'rooms_collect_good_objects_test': PublishedScores(10.0, 0.1, 9.0, 5.8),
    'rooms_exploit_deferred_effects_test':
        PublishedScores(85.7, 8.5, 15.6, 11.0),
    'rooms_select_nonmatching_object': PublishedScores(65.9, 0.3, 7.3, 26.1),
    'rooms_watermaze': PublishedScores(54.0, 4.1, 26.9, 31.1),
    'rooms_keys_doors_puzzle': PublishedScores(53.8, 4.1, 28.0, 24.3),
    'language_select_described_object':
        PublishedScores(389.5, -0.1, 324.6, 593.1),
    'language_select_located_object': PublishedScores(280.7, 1.9, 189.0, 301.7),
    'language_execute_random_task': PublishedScores(254.1, -5.9, -49.9, 66.8),
    'language_answer_quantitative_question':
        PublishedScores(184.5, -0.3, 219.4, 264.0),
    'lasertag_one_opponent_small': PublishedScores(18.6, -0.1, -0.1, 2.5),
    'lasertag_three_opponents_small': PublishedScores(31.5, -0.1, 19.1, 11.3),
    'lasertag_one_opponent_large': PublishedScores(12.7, -0.2, -0.2, 0.3),
    'lasertag_three_opponents_large': PublishedScores(18.6, -0.2, -0.1, 4.1),
    'natlab_fixed_large_map': PublishedScores(36.9, 2.2, 34.7, 12.2),
    'natlab_varying_map_regrowth': PublishedScores(24.4, 3.0, 20.7, 15.9),
    'natlab_varying_map_randomized': PublishedScores(42.4, 7.3, 36.1, 29.0),
    'skymaze_irreversible_path_hard': PublishedScores(100.0, 0.1, 13.6, 30.0),
    'skymaze_irreversible_path_varied':
        PublishedScores(100.0, 14.4, 45.1, 53.6),
    'psychlab_arbitrary_visuomotor_mapping':
        PublishedScores(58.8, 0.2, 16.4, 14.3),
    'psychlab_continuous_recognition': PublishedScores(58.3, 0.2, 29.9, 29.9),
    'psychlab_sequential_comparison': PublishedScores(39.5, 0.1, 0.0, 0.0),
    'psychlab_visual_search': PublishedScores(78.5, 0.1, 0.0, 0.0),
    'explore_object_locations_small': PublishedScores(74.5, 3.6, 57.8, 62.6),
    'explore_object_locations_large': PublishedScores(65.7, 4.7, 37.0, 51.1),
    'explore_obstructed_goals_small': PublishedScores(206.0, 6.8, 135.2, 188.8),
    'explore_obstructed_goals_large': PublishedScores(119.5, 2.6, 39.5, 71.0),
    'explore_goal_locations_small': PublishedScores(267.5, 7.7, 209.4, 252.5),
    'explore_goal_locations_large': PublishedScores(194.5, 3.1, 83.1, 125.3),
    'explore_object_rewards_few': PublishedScores(77.7, 2.1, 39.8, 43.2),
    'explore_object_rewards_many': PublishedScores(106.7, 2.4, 58.7, 62.6),
}


def human_normalized_score(level, mean_return):
  """Places a return between random actions (0) and a human (100).

  Args:
    level: A test level's name.
    mean_return: Float.

  Returns:
    100 (return - random) / (human - random), in percent.
  """
  random, human = RANDOM_SCORES[level], HUMAN_SCORES[level]
  return 100. * (mean_return - random) / (human - random)


def compute_human_normalized_score(level_returns, per_level_cap=None):
  """Mean over the 30 levels of 100 (score - random) / (human - random).

  Args:
    level_returns: A dict of level to a list of episode returns. Training levels
      count as the levels they are tested on. Other keys are ignored.
    per_level_cap: The percentage at which a level's score is capped, or None.

  Returns:
    The mean, in percent.

  Raises:
    ValueError: A level is missing or has no returns.
  """
  scores = []
  for level, test_level in LEVEL_MAPPING.items():
    returns = [r for name in dict.fromkeys((level, test_level))
               for r in level_returns.get(name, ())]
    if not returns:
      raise ValueError(f'There are no returns of {test_level}.')
    scores.append(human_normalized_score(test_level, np.mean(returns)))
  if per_level_cap is not None:
    scores = np.minimum(scores, per_level_cap)
  return float(np.mean(scores))
