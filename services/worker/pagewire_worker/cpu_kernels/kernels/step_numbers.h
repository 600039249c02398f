// Numbers of the buffers of a step, and of its operations; mirrored by ../abi.py.
#pragma once

// Memory for the activations of one step; T is its number of tokens, X the type of the model, and C the
// most experts of a token. Rows of chosen experts are sorted by expert, and then by token.
enum {
  PW_RESIDUAL = 0,   // float32 [T, hidden]
  PW_PRODUCTS = 1,   // float32 [T, the most outputs of a product that is stored]
  PW_NORMED = 2,     // X [T, hidden]; with latents also what queries are made of
  PW_QUERY = 3,      // X [T, heads * head_dim]; with latents also [T, values of all heads]
  PW_ATTENDED = 4,   // X [T, heads * head_dim]; with latents [heads, T, plain_dim or latent_dim]
  PW_ACTIVATED = 5,  // X [T, intermediate]
  PW_PREPARED = 6,  // [T, most bytes of a prepared row of any input]; may be null if that is 0
  PW_WEIGHTS = 7,    // float32 [T, C + 1], of the chosen experts and of the shared one
  PW_CHOSEN = 8,     // int32 [2, T, C]: experts, and their rows
  PW_STARTS = 9,     // int64 [2, PW_MOST_EXPERTS + 1]: first rows of all experts, and of those here
  PW_EXPERT_INPUT = 10,      // X [T * C, hidden]
  PW_EXPERT_PREPARED = 11,   // [T * C, bytes of a prepared row]
  PW_EXPERT_ACTIVATED = 12,  // X [T * C, intermediate]
  PW_EXPERT_OUTPUT = 13,     // float32 [slices, T * C, hidden]
  PW_LOW = 14,  // float32 [T, most tensors of a matrix, largest rank of an adapter]
  PW_EXPERT_LOW = 15,    // PW_LOW for the rows of experts, [T * C, ...]
  PW_EXPERT_SLOTS = 16,  // int64 [T * C], adapter slots of these rows; -1 for none
  PW_SLICED = 17,  // X [slices, T, inputs of a slice]: what heads see, as the input of slices
  PW_EXPERT_EXCHANGED = 18,  // float32 [slices of a rank, T * C, hidden]: rows of the experts of all ranks
  PW_NUM_BUFFERS = 19
};

// Slices of the inputs of a matrix, whose products are summed by a fixed tree (`sum_of_parts`); so the bits
// of a sum are the same whichever ranks have the slices. Each is a matrix of its own. Buffers have the rows
// of the first slice first.
enum { PW_MOST_SLICES = 16 };

// What an operation does with all tokens of a step. x is its input, y its output.
enum {
  PW_NORM = 0,      // y = norm(x), from float32 to X
  PW_ROUND = 1,     // y = x, from float32 to X; [T, hidden]
  PW_ADD_NORM = 2,  // y += factor * norm(x), float32; x is changed. Without a norm y += factor * x
  PW_PREPARE = 3,  // rows of x quantized for `linear`, or the sums of their groups
  PW_STORE = 4,     // y = x W^T + bias, float32
  PW_ADD = 5,       // y += factor * (x W^T + bias), float32
  PW_GATE = 6,      // y = activation(gate) * up of x W^T + bias; panels of gate and up alternate
  PW_ACTIVATE = 7,  // y = activation(x W^T + bias)
  PW_ROTATE = 8,    // queries of the products x, normalised and rotated; keys and values are stored
  PW_ATTEND = 9,    // y = what all heads see, x are queries
  PW_ROUTE = 10,    // experts and weights of each token, from the products x of a router
  PW_SORT = 11,     // the rows of the chosen experts
  PW_SPREAD = 12,   // rows of x, and of what was prepared of it for `linear`, to the rows of experts
  PW_EXPERT_PREPARE = 13,  // PW_PREPARE for the rows of experts
  PW_EXPERT_STORE = 14,    // PW_STORE for the rows of experts; `linear` is the first of all experts
  PW_EXPERT_GATE = 15,     // PW_GATE for the same
  // y += factor * weighted sum of the rows x of experts, and of PW_PRODUCTS if shared. y may also be
  // PW_PRODUCTS, which are replaced then. Experts are added in the columns that are named, -0 elsewhere.
  PW_COLLECT = 16,
  PW_LATENT_KEY = 17,  // latents of the products x of `linear` are stored, y are normed parts of queries
  PW_LATENT_QUERY = 18,  // queries in the products x of `linear`: plain parts to y, others to PW_QUERY
  PW_ABSORB = 19,      // plain parts x times the matrix of each head, from `linear` on, to queries y
  PW_EXPAND = 20,      // what heads see, x, times the matrix of each head, from `linear` on
  PW_LOWER = 21,       // y = scaling * (down x) of the adapters of each token, for the next product
  PW_EXPERT_LOWER = 22,  // PW_LOWER for the rows of experts; `adapters` are the first of all experts
  PW_REDUCE = 23,        // x = the sum of x of all ranks of the model's group, float32 [T, hidden]
  PW_SLICE = 24,         // y = x, cut into slices of the inputs of `linear`
  PW_SUM_SLICES = 25,    // x = the sum of all slices of x, float32 [T, hidden]
  PW_EXPERT_EXCHANGE = 26  // y = columns that this rank collects of the rows x of experts of all ranks
};
