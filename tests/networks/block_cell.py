"""TensorFlow 1's fused kernel, the oracle of the LSTMs here."""

import tensorflow as tf

from scalable_agent import networks


def step(params, name, inputs, state):
  """Makes one step as LSTMBlockCell(units) calls the kernel."""
  units = state.h.shape[-1]
  peephole = tf.zeros([units])
  _, c, _, _, _, _, h = tf.raw_ops.LSTMBlockCell(
      x=inputs, cs_prev=state.c, h_prev=state.h, w=params[name + '/w'],
      wci=peephole, wcf=peephole, wco=peephole, b=params[name + '/b'],
      forget_bias=1., cell_clip=-1., use_peephole=False)
  return networks.LSTMState(c, h)


def encode(params, words):
  """Encodes instructions word by word, up to the last word of each."""
  rows = []
  for ids in words:
    state = networks.LSTMState(tf.zeros([1, 64]), tf.zeros([1, 64]))
    for word in ids[ids >= 0]:
      embedding = params['instruction/embedding'][word][tf.newaxis]
      state = step(params, 'instruction/lstm', embedding, state)
    rows.append(state.h)
  return tf.concat(rows, axis=0)
