// The C interface of the kernels: plain structures, mirrored by ../abi.py. The caller keeps the
// ownership of every pointer.
#pragma once
#include <stdint.h>

#include "step_numbers.h"

#ifdef __cplusplus
extern "C" {
#endif

// Storage of a matrix. Activations have the first two types only, keys and values also int8. Products
// with int8 and int4 quantize their input, those with codes of 8 and 4 bits do not (products/codes.h).
enum {
  PW_FLOAT32 = 0,
  PW_BFLOAT16 = 1,
  PW_INT8 = 2,
  PW_INT4 = 3,
  PW_CODES8 = 4,
  PW_CODES4 = 5,
  PW_FLOATS8 = 6
};

// Types of the scales and offsets of codes. Those of the last type are integers of 8 bits times a factor
// in float16, which `factor_groups` groups share.
enum { PW_SCALE_FLOAT32 = 0, PW_SCALE_BFLOAT16 = 1, PW_SCALE_FLOAT16 = 2, PW_SCALE_INT8 = 3 };

// Offsets of the groups of a matrix of codes: a weight is code * scale, (code - offset) * scale or
// code * scale + offset.
enum { PW_NO_OFFSETS = 0, PW_ZERO_POINTS = 1, PW_MINIMA = 2 };

typedef struct PwGroup PwGroup;

// Rows of codes to be packed: a byte each, [rows, inputs], signed if they have 8 bits. `scales` and
// `offsets` are [rows, groups] of the matrix's scale type, the factors [rows, groups / factor_groups] in
// float16. What a matrix does not have is null; `offsets` may be null for 0.
typedef struct {
  const uint8_t* codes;
  const void* scales;
  const void* offsets;
  const void* scale_factors;
  const void* offset_factors;
} PwCodes;

// y = x W^T + bias. `weight` is packed (products/pack.h), `bias` is float32 or null.
typedef struct {
  const void* weight;
  const float* bias;
  const float* scales;  // of the rows of an int8 matrix, [outputs]; others have them in `weight`
  const float* table;   // the values of codes of 4 bits, [16], or of floats of 8 bits, [256]
  const int32_t* order;  // the place in x of each input of a matrix of codes; null for theirs
  int32_t kind;         // its storage
  int32_t group;        // inputs that share a scale in a matrix of int4 or codes, a multiple of 16
  int32_t scale_type;   // of codes
  int32_t offset_kind;  // of codes
  int32_t factor_groups;  // groups that share a factor of their scales; 0 for none
  int32_t num_outputs;  // a multiple of 16; rows beyond the matrix are zeros
  int32_t num_inputs;   // a multiple of 16
} PwLinear;

// A norm of `size` values by root mean square, or a layer norm. The weight has its offset already.
typedef struct {
  const float* weight;
  const float* bias;  // null for none
  float epsilon;
  int32_t size;         // a multiple of 16
  int32_t is_centered;  // the mean is subtracted first
} PwNorm;

// Attention of one layer; the shape of its heads is the model's.
typedef struct {
  const PwNorm* query_norm;  // of each head or of all heads together, by its size; null for none
  const PwNorm* key_norm;    // with latents the norms are of what queries are made of, and of latents
  // [positions, head_dim / 2], with latents [positions, (head_dim - latent_dim) / 2]; null for no rotation
  const float* cosines;
  const float* sines;
  const float* query_scales;  // [positions], factors of rotated queries; null for 1
  void* key;  // the layer's part of the KV cache, see attention/kv.h
  void* value;  // null with latents
  const float* sinks;  // [heads], scores without a position and a value in the softmax; null for none
  int32_t window;  // positions that a token sees, itself included; 0 for all
  int32_t group;   // cache group of the layer
  float score_scale;
  float softcap;  // c of c * tanh(score / c); 0 for none
} PwAttention;

// The adapter of one tensor in one slot: y += scaling * up (down x). Both are of the model's type.
typedef struct {
  const void* down;  // [rank, inputs]
  const void* up;    // panels of 16 outputs, [panels of the tensor, rank, 16]
  int32_t rank;      // 0 for none
  float scaling;
} PwAdapterPart;

// The tensor that a panel of a matrix belongs to, and its number among the panels of that tensor.
typedef struct {
  int32_t part;
  int32_t place;
} PwAdapterPanel;

// The adapters of a matrix in all slots. Steps read only the slots of their tokens.
typedef struct {
  const PwAdapterPart* parts;    // [slots, num_parts]
  const PwAdapterPanel* panels;  // [panels of the matrix]
  int32_t num_parts;             // tensors of which the matrix is made
  int32_t max_rank;
  int32_t num_inputs;
} PwAdapters;

// The adapters of the rows of a product by itself.
typedef struct {
  const PwAdapters* adapters;  // of the matrix
  const int64_t* slots;        // [rows], -1 for none
  float* low;                  // memory, [rows, max_rank]
} PwRowAdapters;

// Chooses experts for each token by the products of a router, and weighs them.
//
// The score of an expert is its part of the softmax, or the sigmoid of its product. Of the groups with
// the greatest sums of their `group_best` best choices, those with the greatest choices are taken; of
// equal ones, the first. A choice is a score plus its bias.
typedef struct {
  const float* choice_bias;  // [experts]; null for 0
  int64_t* counts;           // [experts], the tokens of each are added; null for no counting
  int32_t num_experts;       // the first products of a token; at most PW_MOST_EXPERTS
  // The experts whose matrices are here; of `size` ranks that have the others, `rank` has those from
  // rank * num_experts / size on.
  int32_t first_expert;
  int32_t num_own;
  int32_t num_chosen;
  int32_t num_groups;  // of equal size
  int32_t num_chosen_groups;
  int32_t group_best;
  int32_t is_sigmoid;
  int32_t is_normalised;  // weights are divided by the sum of the chosen scores
  int32_t has_shared;     // an expert of all tokens: its weight is 1,
  int32_t has_gate;       // or the sigmoid of the product behind those of the experts
  float factor;           // of the weights of the chosen
} PwRouter;

enum { PW_MOST_EXPERTS = 1024 };

// Functions between the matrices of an MLP. The last one takes a gate g and the value u that it
// multiplies, and gives (u + 1) * g / (1 + e^(-slope * g)) for g of at most `limit` and u of at most that
// size.
enum { PW_SILU = 0, PW_GELU = 1, PW_GELU_TANH = 2, PW_CLAMPED_SWIGLU = 3 };

typedef struct {
  int32_t function;
  float limit;  // of the last function, and its slope
  float slope;
} PwActivation;

// One operation of a layer; each kind reads the fields that it needs.
typedef struct {
  int32_t kind;
  int32_t input;  // buffers
  int32_t output;
  float factor;
  PwActivation activation;
  const PwLinear* linear;
  const PwNorm* norm;
  const PwAttention* attention;
  const PwRouter* router;
  const PwAdapters* adapters;  // of `linear`; null for none
  // PW_STORE: the column of y of the first output, and the columns of a row of y; the matrix may be one
  // of several that have the same input. PW_EXPERT_EXCHANGE, PW_COLLECT: the columns that this rank collects,
  // of a row of all slices or of y.
  int32_t first_column;
  int32_t num_columns;
  // Slices, of which `linear` is the first; those of all experts are followed by the next ones of all. 1
  // for a matrix that is not cut.
  int32_t num_slices;
  // PW_GATE, PW_ACTIVATE, PW_EXPERT_GATE: slices of y, whose rows are the input of slices; 1 for none.
  int32_t num_cuts;
} PwOperation;

// A layer: its operations in order.
typedef struct {
  const PwOperation* operations;
  int64_t num_operations;
} PwLayer;

typedef struct {
  int32_t type;     // of matrices and activations
  int32_t kv_type;  // of the KV cache: the same, or PW_INT8 with a scale per token and head
  int32_t num_layers;
  int32_t hidden;
  int32_t num_heads;
  int32_t num_kv_heads;
  int32_t head_dim;
  int32_t latent_dim;      // values are the first numbers of keys, so many; 0: values of their own
  int32_t plain_dim;       // with latents: numbers of a query before its rotated part
  int32_t block_size;      // a multiple of 16
  float embedding_factor;  // of the rows that are looked up
  PwNorm norm;             // of the states behind the last layer
  PwLinear embedding;      // one row per token id
  // Of the embedding, before its factor; null for none. There is one tensor, whose `down` is
  // [token ids, rank].
  const PwAdapters* embedding_adapters;
  const PwLayer* layers;
  // Of the ranks that compute the model together, each with parts of its matrices; null for none. Then
  // the embedding has the rows of `num_rows` tokens from `first_row` on.
  PwGroup* group;
  int32_t first_row;
  int32_t num_rows;
  // A model may be a stage of another one. If it is not the first, it begins with the residual that lies in
  // its buffer, and has no embedding. If it is not the last, it has no norm.
  int32_t looks_up;
  int32_t has_end;
} PwModel;

// One flat batch, as StepBatch in ../../backend/backend.py describes it; all arrays are int64.
typedef struct {
  int64_t num_tokens;
  int64_t num_seqs;
  int64_t num_outputs;
  int64_t table_stride;  // entries of a row of block_tables
  const int64_t* token_ids;
  const int64_t* positions;
  const int64_t* slot_mapping;  // [cache groups, num_tokens]
  const int64_t* output_rows;
  const int64_t* query_starts;
  const int64_t* seq_lens;
  const int64_t* block_tables;  // [cache groups, num_seqs, table_stride]
  // [num_tokens], or null. Set to 1 for a token whose key or value is not finite, or would not be in
  // its stored type; 0 is stored in its place. With null, values are stored as they are.
  int64_t* faults;
  const int64_t* adapter_slots;  // [num_tokens], -1 for none; null if no token has an adapter
} PwBatch;

// The buffers, by their numbers.
typedef struct {
  void* buffers[PW_NUM_BUFFERS];
} PwScratch;

// A row of logits that a token is chosen from, by noise of a seed. Position and choice are below 2^32.
typedef struct {
  int64_t row;
  uint64_t seed;
  int64_t position;
  int64_t choice;
  int64_t token;      // the likeliest one of the row, and then the chosen one
  float temperature;  // above 0
  float least;        // of logits / temperature that are kept; -inf for all
} PwChoice;

// What the filters of a row keep, as ../../sampling/filters.py says.
typedef struct {
  int64_t top_k;  // 0 keeps all
  float min_p;    // 0 keeps all
  float top_p;    // 1 keeps all
} PwDraftFilter;

// The arrays of a batch that change from one draft to the next; see PwBatch.
typedef struct {
  int64_t* token_ids;
  int64_t* positions;
  int64_t* slot_mapping;
  int64_t* seq_lens;
} PwDraftPlaces;

// How a draft model chooses the next token of each sequence of a batch, and goes on with it. Rows without a
// choice take their likeliest token.
typedef struct {
  const PwLinear* vocabulary;
  int64_t vocab_size;
  int64_t num_choices;
  PwChoice* choices;             // [num_choices]; each draft adds one to their positions
  const PwDraftFilter* filters;  // [num_choices]
  int64_t most_sorted;           // logits that filters look at, the likeliest
  float* sorted;                 // memory for as many
  void* states;                  // [num_seqs, hidden]
  void* prepared;                // memory for num_seqs prepared rows
  float* logits;                 // [num_seqs, outputs of the vocabulary]
  PwDraftPlaces places;
  float divisor;  // of logits, 1 for none
  float softcap;  // 0 for none
} PwDrafting;

typedef struct PwPool PwPool;

#pragma GCC visibility push(default)

// Shared memory of a group of `size` ranks, which have `num_stages` stages of a model between them. A slot
// takes the part of one rank, or a piece of a message; what is longer goes in pieces. It is a multiple of 64
// bytes.
int64_t pw_group_bytes(int32_t size, int32_t num_stages, int64_t slot_bytes);
// One rank's view of its group, whose memory has begun as zeros. From now on it is watched; null if no
// thread can be started. A collective ends with a lost rank after `timeout_ms`.
PwGroup* pw_group_new(void* memory, int32_t rank, int32_t size, int32_t num_stages, int64_t slot_bytes,
                      int64_t timeout_ms);
void pw_group_free(PwGroup* group);
// The ranks of its stage, for collectives; it lives as long as the group.
PwGroup* pw_group_stage(PwGroup* group);
// Reach the ranks of another host, `size` of them from `first` on, by a connected socket, which the group
// closes. Its other end is that of rank `peer`, which joins this host by it. 0 if no thread can be started.
int32_t pw_group_join_host(PwGroup* group, int32_t fd, int32_t first, int32_t size, int32_t peer);
// Let collectives to come end after another time.
void pw_group_timeout(PwGroup* group, int64_t timeout_ms);
// Let each wait give its core to others that want one for so long before it sleeps.
void pw_group_yield(PwGroup* group, int64_t nanoseconds);
// End the group because of `rank`: every wait ends, and every collective to come fails.
void pw_group_lose(PwGroup* group, int32_t rank);
// The rank that ended the group; -1 while all are well.
int32_t pw_group_lost(PwGroup* group);
// Collectives of all ranks: each calls the same ones with the same sizes. 0 if a rank is lost.
int32_t pw_all_reduce(PwGroup* group, float* x, int64_t count);
int32_t pw_all_gather(PwGroup* group, const void* x, int64_t num_bytes, void* all);
int32_t pw_broadcast(PwGroup* group, void* x, int64_t num_bytes, int32_t root);
// Hidden states on their way from a rank to the rank of the same place in the next stage, which takes as
// many bytes; both wait without an end. 0 if a rank is lost.
int32_t pw_pass_on(PwGroup* group, const void* states, int64_t num_bytes);
int32_t pw_take(PwGroup* group, void* states, int64_t num_bytes);
// A message of rank 0 to all others, of at least one byte. Each of them asks for its size, which waits
// without an end and is -1 if a rank is lost, and then takes it. 0 if a rank is lost.
int32_t pw_send(PwGroup* group, const void* message, int64_t num_bytes);
int64_t pw_message_bytes(PwGroup* group);
int32_t pw_receive(PwGroup* group, void* message, int64_t num_bytes);

// Names of the instruction sets with kernels, the newest first; null behind the last one.
const char* pw_isa_name(int32_t isa);
// Whether this machine has the instruction set.
int32_t pw_isa_runs(int32_t isa);
// Fingerprint of the sources that this library was compiled from.
const char* pw_source_hash(void);

// A pool of `num_threads` threads, with the caller's, for kernels of one instruction set.
PwPool* pw_pool_new(int32_t isa, int32_t num_threads);
void pw_pool_free(PwPool* pool);

// Store rows of a matrix [num_rows, num_inputs] of type `source_type` as panels first_panel,
// first_panel + panel_step, ... of the packed matrix `linear`, whose weights and scales are written.
void pw_pack(PwPool* pool, const PwLinear* linear, int32_t source_type, const void* source,
             int64_t num_rows, int64_t first_panel, int64_t panel_step);
// Store codes as above.
void pw_pack_codes(PwPool* pool, const PwLinear* linear, const PwCodes* codes, int64_t num_rows,
                   int64_t first_panel, int64_t panel_step);
// Bytes of the weights of a matrix, and of a row of its input that is prepared (PwScratch).
int64_t pw_weight_bytes(const PwLinear* linear);
int64_t pw_prepared_row_bytes(const PwLinear* linear);

// Compute layers [first_layer, last_layer) of a step. The first call also looks the tokens up. The
// call for the last layer also writes the normalised states of the output rows: X [outputs, hidden].
// Stages that are not the first or the last do not.
void pw_step(PwPool* pool, const PwModel* model, const PwBatch* batch, const PwScratch* scratch,
             int32_t first_layer, int32_t last_layer, void* states);

// Write tokens for each sequence of a batch of one token each, a step for each draft: drafts from `first_draft`
// to before `last_draft` of [drafts, num_seqs]. The batch is that of the step before, and then that of the
// last one; its tables have the blocks of all steps.
void pw_draft(PwPool* pool, const PwModel* model, const PwBatch* batch, const PwScratch* scratch,
              const PwDrafting* drafting, int64_t first_draft, int64_t last_draft, int64_t* drafts);

// y [num_rows, stride] = x [num_rows, inputs] W^T + bias, y in float32. `type` is the type of x;
// `prepared` is memory for its rows if prepared ones have bytes.
void pw_linear(PwPool* pool, int32_t type, const PwLinear* linear, const void* x, int64_t num_rows,
               void* prepared, float* y, int64_t stride);
// Write the greatest of the first `num_outputs` columns of x W^T per row, the first of equal ones, or
// -1 if a column is not finite. The matrix has no bias and fewer than 2^24 outputs.
void pw_argmax(PwPool* pool, int32_t type, const PwLinear* linear, const void* x, int64_t num_rows,
               void* prepared, int64_t num_outputs, int64_t* y);
// The same with adapters of the rows.
void pw_adapted_linear(PwPool* pool, int32_t type, const PwLinear* linear, const void* x,
                       int64_t num_rows, void* prepared, float* y, int64_t stride,
                       const PwRowAdapters* adapters);
void pw_adapted_argmax(PwPool* pool, int32_t type, const PwLinear* linear, const void* x,
                       int64_t num_rows, void* prepared, int64_t num_outputs, int64_t* y,
                       const PwRowAdapters* adapters);
// x = softcap * tanh(x / divisor / softcap) for `count` values, a multiple of 16; a softcap of 0 is none.
void pw_finish_logits(PwPool* pool, float* x, int64_t count, float divisor, float softcap);
// Choose the tokens of `num_rows` rows of logits [rows, stride], none of which has a NaN or +inf: the
// greatest of logits / temperature + noise (../../sampling/sampler.py), the first of equal ones.
void pw_choose(PwPool* pool, PwChoice* choices, int64_t num_rows, const float* logits,
               int64_t vocab_size, int64_t stride);
// y [num_rows, wanted] are the largest of the first `size` values of each row of x, in falling order;
// `wanted` is at most `size`. There are no NaNs.
void pw_largest(PwPool* pool, const float* x, int64_t num_rows, int64_t size, int64_t stride,
                int64_t wanted, float* y);
// Write 1 to `marks` [num_rows, spans] for each span of 1,024 columns in which a row keeps a value.
void pw_mark_spans(PwPool* pool, const PwChoice* choices, int64_t num_rows, const float* logits,
                   int64_t vocab_size, int64_t stride, uint8_t* marks);
// y [count, 1024] are the logits / temperature of some spans, by their places in `marks`, minus the
// `shifts` of their rows; those that are not kept are -inf.
void pw_scale_spans(PwPool* pool, const PwChoice* choices, const float* logits, int64_t vocab_size,
                    int64_t stride, const float* shifts, const int64_t* places, int64_t count, float* y);
// Single parts of a step, for tests and measurements. Noise is that of random words; `brief` is what
// pw_choose compares first.
void pw_noise(PwPool* pool, const uint32_t* words, int64_t count, float* exact, float* brief);
void pw_activate(PwPool* pool, int32_t type, const PwLinear* linear, const PwActivation* activation,
                 int32_t is_gated, const void* x, int64_t num_rows, void* prepared, void* y);
void pw_rotate_and_store(PwPool* pool, const PwModel* model, const PwBatch* batch,
                         const PwScratch* scratch, const PwAttention* attention);
void pw_attend(PwPool* pool, const PwModel* model, const PwBatch* batch, const PwScratch* scratch,
               const PwAttention* attention);
void pw_norm(PwPool* pool, int32_t type, const float* x, const PwNorm* norm, int64_t num_rows, void* y);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
