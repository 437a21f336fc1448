#pragma once

#include <array>
#include <cstdint>
#include <heddle/core/base/error.hpp>
#include <heddle/core/tensor/pack.hpp>
#include <heddle/io/preparation/prepare.hpp>
#include <string>
#include <type_traits>
#include <vector>

#include "given_fields.hpp"
#include "line_blocks.hpp"
#include "text_findings.hpp"

namespace heddle {

/// A sample of a block, whose values are the next ones of the block's lists.
struct EncodedSample {
  std::array<std::int32_t, 2> tokens{};  ///< of each side
  std::int32_t links = 0;
  std::int32_t weights = 0;
  std::uint64_t hash = 0;    ///< hash_of_sample
  std::int64_t unknown = 0;  ///< tokens of both sides
  std::int32_t control = 0;  ///< 1: has control characters
};

/// The samples of a block of lines, and the lines that are none.
struct EncodedBlock {
  std::vector<EncodedSample> samples = {};
  std::array<std::vector<std::int32_t>, 2> tokens = {};  ///< of each side
  std::vector<TokenLink> links = {};
  std::vector<float> weights = {};
  std::int64_t empty = 0, too_long = 0, invalid = 0;  ///< as in PreparedText
  std::vector<UnknownCharacter> unknown_characters = {};
  ExitCode failure = ExitCode::done;  ///< the code of the error in a line, after which there are no more samples
  std::string error = {};

  void clear();
  /// Throws the error of a line, if there is one.
  void require_valid() const;
};

template <class Counted, class Visit>
requires std::is_same_v<std::remove_const_t<Counted>, UnknownCharacter>
void visit_values(Counted& counted, Visit const& visit) {
  visit(counted.character);
  visit(counted.times);
}
template <class Block, class Visit>
requires std::is_same_v<std::remove_const_t<Block>, EncodedBlock>
void visit_values(Block& block, Visit const& visit) {
  visit(block.samples);
  visit(block.tokens[0]);
  visit(block.tokens[1]);
  visit(block.links);
  visit(block.weights);
  visit(block.empty);
  visit(block.too_long);
  visit(block.invalid);
  visit(block.unknown_characters);
  visit(block.failure);
  visit(block.error);
}

/// Encodes the lines of blocks: each block by itself, so that the samples do not depend on which encoder has it. Used
/// by one thread at a time.
class BlockEncoder {
 public:
  /// The arguments must outlive it.
  BlockEncoder(PrepareOptions const& options, Vocabulary const& vocabulary, GivenFields const& fields);

  /// Sets `encoded`, also where a line has an error.
  void encode(LineBlock const& lines, EncodedBlock& encoded);

 private:
  struct Side {
    Tokenizer const& tokenizer;
    std::vector<std::int32_t> const& prefix;  ///< tokens before each text's own
    std::string_view line = {};
    std::vector<std::int32_t> ids = {};
    EncodedSide encoded() const { return {tokenizer, line, ids, prefix.size()}; }
  };

  /// Whether a pair or a line is left out as it is, before it is encoded.
  bool left_out(LineBlock const& lines, std::size_t index) const;
  void encode_line(LineBlock const& lines, std::size_t index, EncodedBlock& encoded);
  void add_sample(LineBlock const& lines, std::size_t index, EncodedBlock& encoded);

  PrepareOptions const& options_;
  GivenFields const& fields_;
  TextFrame frame_;
  std::vector<Side> sides_;
  UnknownCharacters unknown_;
  Sample pair_;         ///< for the fields
  std::string sample_;  ///< its lines together
};

}  // namespace heddle
