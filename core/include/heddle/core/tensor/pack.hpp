#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <heddle/core/base/enumerations.hpp>
#include <heddle/core/base/index_range.hpp>
#include <heddle/core/tensor/tensor.hpp>
#include <initializer_list>
#include <memory>
#include <set>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace heddle {

/// The places of sequences in a packed [tokens, …] matrix: sequence i is rows [begin[i], begin[i] +
/// length[i]).
struct Sequences {
  Tensor begin;   ///< int32 [count]
  Tensor length;  ///< int32 [count]
  std::int64_t count = 0;
  std::int64_t max_length = 0;
};

/// One side of a pack: the rows' sequences and, per row, the token's sample (unique within the global batch) and its
/// position in the sentence. Random numbers and positions depend on these two only, so any subset of rows is
/// self-contained.
struct TokenRows {
  Sequences sequences;
  Tensor sample;    ///< int32 [tokens]
  Tensor position;  ///< int32 [tokens]
  std::int64_t tokens = 0;
  /// int32 [sequences.count]: tokens at the start of each sequence that all its tokens see under a prefix mask.
  /// Empty where no sequence has a prefix.
  Tensor prefix_length{};
  /// int32 [tokens]: twice the position, plus 1 after the sequence's prefix, in a source whose sequences have the
  /// first of two texts as prefix (Devlin et al. 2019). Empty where none has.
  Tensor typed_position{};
};

/// The tokens' ids, and the rows sorted by id (stable): the embedding's gradient is then a sum over segments.
struct TokenIds {
  Tensor id;         ///< int32 [tokens]
  Tensor row_order;  ///< int32 [tokens]
};

/// The tokens that rows are to predict.
struct RowTargets {
  Tensor id;        ///< int32 [tokens]; below 0: the row predicts nothing
  Tensor weight{};  ///< float32 [tokens]: factor of each row's loss; empty: 1
};

/// The source tokens with which rows of the target are aligned.
struct AlignedTokens {
  Tensor begin;     ///< int32 [rows + 1]: row i has those of [begin[i], begin[i + 1]); empty: none is aligned
  Tensor position;  ///< int32: of each one in its sequence
};

enum class Side { source, target };

/// The distribution of one side's tokens over the context group. A sequence of n tokens is cut into 2c chunks, chunk i
/// being share(n, i, 2c); rank r holds chunk r and then chunk 2c - 1 - r, so that causal attention is equal work for
/// all ranks and positions ascend within a sequence's rows. Chunks of short sequences are empty.
struct ContextRows {
  std::vector<TokenRows> shards;  ///< every rank's rows, in rank order; empty: the pack is not split
  TokenRows whole;                ///< the sequences that a single rank would hold
  Tensor to_whole;                ///< int32 [all tokens]: whole row i is row to_whole[i] of the shards in rank order
  Tensor from_whole;              ///< the inverse

  std::vector<std::int64_t> shard_tokens() const {
    std::vector<std::int64_t> tokens;
    for (TokenRows const& shard : shards) {
      tokens.push_back(shard.tokens);
    }
    return tokens;
  }
};

/// A rank's place among those that divide the tokens of each sequence. Where the encoder and the decoder have grids of
/// their own (Grid), other ranks divide the encoder's tokens than the decoder's: `both` are those that divide the
/// tokens of both, each of the others divides only one's. A grid's place is that in `both`, then that in its own.
struct ContextSplit {
  constexpr ContextSplit(GroupMember of_both = {})
      : both(of_both) {}  // NOLINT(google-explicit-constructor): it is a split
  constexpr ContextSplit(int rank, int ranks) : both{rank, ranks} {}
  constexpr ContextSplit(GroupMember of_both, GroupMember of_encoder, GroupMember of_decoder)
      : both(of_both), encoder_only(of_encoder), decoder_only(of_decoder) {}

  GroupMember both, encoder_only{}, decoder_only{};

  bool differs() const { return encoder_only.ranks * decoder_only.ranks > 1; }
  GroupMember encoder() const { return within(encoder_only); }
  GroupMember decoder() const { return within(decoder_only); }

 private:
  GroupMember within(GroupMember inner) const {
    return {both.rank * inner.ranks + inner.rank, both.ranks * inner.ranks};
  }
};

/// An exchange of rows within the ranks that divide them in one grid, after which each has its rows of another.
struct RowExchange {
  Tensor sent;  ///< int32: rows of this rank, rank after rank, in the order in which they are sent
  std::vector<std::int64_t> send_rows, receive_rows;  ///< by rank
  Tensor placed;  ///< int32 [rows after it]: for each its place among those that were received
};

struct EncoderPack;

/// One micro-batch: all sentences' tokens, without padding. If it is split over a context group, its rows are this
/// rank's only.
struct Pack {
  TokenRows source_rows;
  TokenRows target_rows;
  TokenIds source;           ///< source pieces, end
  TokenIds target_input;     ///< begin, target pieces
  RowTargets target_output;  ///< target pieces, end
  AlignedTokens alignment;   ///< of this rank's target rows: each with the source tokens of the piece that it predicts

  /// The tokens that the source's rows are to predict, for a model whose last stack is the source's: masked words, for
  /// example (make_sequence_pack).
  RowTargets source_output;

  ContextRows source_context;
  ContextRows target_context;

  /// The source as the encoder's grid divides it; null where that is as here.
  std::shared_ptr<EncoderPack const> encoder;

  TokenRows const& rows(Side side) const { return side == Side::source ? source_rows : target_rows; }
  ContextRows const& context(Side side) const { return side == Side::source ? source_context : target_context; }
};

struct EncoderPack {
  Pack pack;                 ///< with the source only
  RowExchange to_decoder;    ///< within the encoder's context group
  RowExchange from_decoder;  ///< within the decoder's
};

/// Ids of a vocabulary's tokens that stand for no text; `absent` is the id of a token that it lacks.
struct SpecialIds {
  static constexpr std::int32_t absent = -1;

  std::int32_t begin = absent;
  std::int32_t end = absent;
  std::int32_t unknown = absent;
  std::int32_t padding = absent;
  std::int32_t mask = absent;
  /// The first token of every text is its language: it comes after the end token, and a decoder starts from it in
  /// place of the begin token (mBART, Liu et al. 2020).
  bool language_last = false;

  bool operator==(SpecialIds const&) const = default;
};

/// The special ids of the source's and of the target's vocabulary.
struct SideIds {
  SpecialIds source;
  SpecialIds target;

  SpecialIds const& of(Side side) const { return side == Side::source ? source : target; }
  bool operator==(SideIds const&) const = default;
};

/// The fields of samples besides token ids, which a layer or a task may ask for by name.
enum class SampleField : std::uint8_t { alignment, weights };
template <>
inline constexpr std::array<std::string_view, 2> value_names<SampleField>{"alignment", "weights"};
using SampleFields = std::set<SampleField>;

/// One side of a sample on the host, by fields.
struct SampleSide {
  SampleSide(std::vector<std::int32_t> ids = {}) : tokens(std::move(ids)) {}  // NOLINT(google-explicit-constructor)
  SampleSide(std::initializer_list<std::int32_t> ids) : tokens(ids) {}

  std::vector<std::int32_t> tokens;  ///< ids, without begin and end tokens
  /// Factors of the losses of the tokens and, last, of the end token, where rows predict them; one element: of all of
  /// them; empty: 1.
  std::vector<float> weights{};
};

/// A token of a source and one of its target that translate each other, both counted from 0.
struct TokenLink {
  std::int32_t source = 0;
  std::int32_t target = 0;

  auto operator<=>(TokenLink const&) const = default;
};

/// A sentence pair on the host.
struct Sample {
  std::int32_t number = 0;
  SampleSide source;
  SampleSide target;
  std::vector<TokenLink> alignment = {};
};

/// Tokens of one side on the host, and the token that each row is to predict.
struct TokenSequence {
  std::int32_t sample = 0;
  std::vector<std::int32_t> input;
  std::vector<std::int32_t> output;  ///< one for each row; below 0: the row predicts nothing
  /// Tokens at the start that all tokens see under a prefix mask, or in a source those of the first of two texts.
  std::int32_t prefix = 0;
  std::vector<float> weights = {};  ///< factors of the rows' losses; empty: 1
};

/// One side's sequences on the host, by fields. An optional field is empty, or has an element for each sequence or
/// token.
struct SideFields {
  bool used = false;                         ///< the pack has this side, perhaps without sequences
  bool predicts = false;                     ///< `output` counts
  std::vector<std::int32_t> sample, length;  ///< of each sequence
  std::vector<std::int32_t> id, output;      ///< of each token, sequence after sequence: its id, what it is to predict
  std::vector<std::int32_t> prefix;          ///< of each sequence, see TokenSequence; empty: 0
  std::vector<float> weight;                 ///< of each token's loss; empty: 1
  std::vector<std::int32_t> aligned;         ///< of each token: with how many of the other side it is; empty: 0
  std::vector<std::int32_t> aligned_with;    ///< their positions, token after token

  /// Clears; keeps the capacity.
  void clear(bool with_side);
  void begin_sequence(std::int32_t of_sample);
  /// Appends tokens to the sequence that was begun last.
  void add(std::int32_t token);
  void add(std::span<std::int32_t const> tokens);
  /// Appends sequences that were made in the same form. An optional field that only one of the two has is completed.
  void append(SideFields const& more);

  /// The entities that a field has an element for.
  enum class Each : std::uint8_t { sequence, token, aligned };
  /// Calls visit(field, each, missing) with a pointer to each member that is a field, and the element that an empty
  /// optional one stands for.
  template <class Visit>
  static void for_each_field(Visit const& visit) {
    visit(&SideFields::sample, Each::sequence, 0);
    visit(&SideFields::length, Each::sequence, 0);
    visit(&SideFields::id, Each::token, 0);
    visit(&SideFields::output, Each::token, -1);
    visit(&SideFields::prefix, Each::sequence, 0);
    visit(&SideFields::weight, Each::token, 1.0F);
    visit(&SideFields::aligned, Each::token, 0);
    visit(&SideFields::aligned_with, Each::aligned, 0);
  }
};

/// The content of a pack on the host, before it is split over ranks.
struct PackFields {
  SideFields source, target;

  SideFields const& of(Side side) const { return side == Side::source ? source : target; }
};

/// Takes sentence pairs: sources get the source's end token; targets begin with the target's start token and end with
/// its end token. With SpecialIds::language_last a side's first token comes after its end token instead, and a target
/// begins with it. Throws Error where one of these tokens is absent, and for weights of another number.
void fill_tokens(PackFields& tokens, std::span<Sample const> pairs, SideIds const& ids);
/// Takes sequences of one side, for a decoder-only (target) or encoder-only (source) model.
/// Throws Error for unequal numbers of inputs and outputs, or for a prefix that is longer than its sequence.
void fill_tokens(PackFields& tokens, std::span<TokenSequence const> sequences, Side side);

/// Appends all sequences once more, as those of samples whose numbers are larger by `samples`: a second pass of each,
/// with other random numbers. Of each rank's rows the second half is then the second pass.
void add_second_pass(PackFields& tokens, std::int32_t samples);

/// Memory for packs, used again once a pack has gone. Without it a pack takes new memory. Not for several threads at
/// once.
class PackMemory {
 public:
  PackMemory();
  ~PackMemory();

 private:
  friend class PackWriter;
  struct Buffers;
  std::unique_ptr<Buffers> buffers_;
};

/// Builds a pack; with a split over several ranks it is this rank's part.
Pack make_pack(PackFields const& tokens, ContextSplit const& split = {}, PackMemory* memory = nullptr);
/// Builds a pack from sentence pairs or from sequences of one side, as fill_tokens takes them.
Pack make_pack(std::span<Sample const> pairs, SideIds const& ids, ContextSplit const& split = {});
Pack make_sequence_pack(std::span<TokenSequence const> sequences, Side side, ContextSplit const& split = {});

/// Builds a pack of only the source side, for translation: every sentence gets the end token of `ids`, the source's, as
/// fill_tokens adds it. Throws as make_pack does.
Pack make_source_pack(std::span<SampleSide const> sentences, SpecialIds const& ids, PackMemory* memory = nullptr);

}  // namespace heddle
