"""A tree of arrays as one message: whatever goes in comes out, bit for bit."""

import jax
import jax.numpy as jnp
import numpy as np

from worldline.parallel.message import Message


def test_any_tree_comes_back_bit_for_bit():
    random = np.random.default_rng(0)
    tree = {
        "real": jnp.asarray(random.normal(size=(3, 5)), jnp.float32).at[0, 0].set(jnp.inf),
        "flags": jnp.asarray(random.random((7,)) < 0.5),
        "image": jnp.asarray(random.integers(0, 256, (2, 3, 3)), jnp.uint8),
        "depth": jnp.asarray(random.integers(0, 2**16, (5,)), jnp.uint16),
        "half": jnp.asarray(random.normal(size=3), jnp.bfloat16),
        "count": jnp.int32(-3),
        "keys": jax.random.split(jax.random.key(1), 3),
        "nothing": (jnp.zeros((4, 0)), ()),
    }
    message = Message(jax.eval_shape(lambda tree: tree, tree))
    # By hand: 15 floats; 7, 18 bytes and 5, 3 halves, each filled up to 4 bytes; 1; 3 keys of 2.
    assert message.words == 15 + 2 + 5 + 3 + 2 + 1 + 6
    words = message.pack(tree)
    assert (words.shape, words.dtype) == ((message.words,), jnp.uint32)
    back = message.unpack(words)
    assert jax.tree.structure(back) == jax.tree.structure(tree)
    for one, other in zip(jax.tree.leaves(tree), jax.tree.leaves(back), strict=True):
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        if jnp.issubdtype(one.dtype, jax.dtypes.prng_key):
            one, other = jax.random.key_data(one), jax.random.key_data(other)
        assert np.asarray(one).tobytes() == np.asarray(other).tobytes()


def test_an_empty_tree_is_a_message_too():
    message = Message(())
    assert message.words == 1
    assert message.unpack(message.pack(())) == ()
