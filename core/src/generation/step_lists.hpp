#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <heddle/core/generation/generation.hpp>
#include <heddle/core/model/model.hpp>
#include <heddle/core/tensor/uploaded_tensor.hpp>
#include <list>
#include <map>
#include <vector>

namespace heddle {

struct LiveHypothesis {
  std::int64_t place = 0;   ///< which of its sentence's beam_size places in the caches it has
  std::int64_t parent = 0;  ///< the place of the hypothesis that it extends; its past is copied where it is another
  std::vector<std::int32_t> tokens;
  double log_probability = 0;
  std::size_t group = 0;  ///< of a diverse beam search
  double subtracted = 0;  ///< for tokens that earlier groups had in the same steps
};

/// A sentence that waits or is live, and its ranges of rows in the caches.
struct Sentence {
  std::int64_t number = 0;
  std::int64_t cost = 0;            ///< hypotheses * source tokens
  SampleSide source;                ///< where the model has an encoder output
  std::vector<std::int32_t> start;  ///< the tokens that every hypothesis starts with, at least one; a prompt is there
  std::int64_t longest = 0;         ///< tokens after the start, with the end token
  std::vector<LiveHypothesis> live = std::vector<LiveHypothesis>(1);  ///< at first one for all groups
  std::vector<std::vector<Hypothesis>> finished;                      ///< by groups
  std::int64_t capacity = 0;                                          ///< token rows of each hypothesis
  std::int64_t first_token_row = 0;
  std::int64_t first_state = 0;
  std::int64_t first_source_row = 0;
  std::vector<std::int32_t> shortlist = {};  ///< the tokens that it is chosen from; empty: all
  std::int64_t first_column = 0;             ///< of the shortlist, see ShortlistedOutputs

  /// The position of the start's last token.
  std::int64_t start_end() const { return static_cast<std::int64_t>(start.size()) - 1; }
  std::int64_t source_rows() const { return std::ssize(source.tokens) + 1; }
  /// Tokens that its live hypotheses have after their start.
  std::int64_t length() const { return static_cast<std::int64_t>(live.front().tokens.size()); }
  /// Whether it has had no step yet: each gives its live hypotheses a token.
  bool is_new() const { return length() == 0; }
};

/// Ranges of a cache's rows that are taken by sentences.
class CacheSlots {
 public:
  /// The first of `rows` free rows, at the first place where they fit.
  std::int64_t take(std::int64_t rows) {
    std::int64_t begin = 0;
    for (auto const& [other, end] : taken_) {
      if (other - begin >= rows) {
        break;
      }
      begin = end;
    }
    taken_[begin] = begin + rows;
    count_ = std::max(count_, begin + rows);
    return begin;
  }
  void release(std::int64_t begin) { taken_.erase(begin); }
  /// The rows that the cache must have.
  std::int64_t count() const { return count_; }

 private:
  std::map<std::int64_t, std::int64_t> taken_;  ///< begin and end
  std::int64_t count_ = 0;
};

/// The integers of a step of decoding on the host.
class StepLists {
 public:
  /// A step of sentences that are all new or all not.
  explicit StepLists(std::list<Sentence> const& sentences);

 private:
  friend class StepUpload;
  struct List {
    std::vector<std::int32_t> host;
    Tensor uploaded{};

    void add(std::int64_t value) { host.push_back(static_cast<std::int32_t>(value)); }
  };

  void add(Sentence const& sentence, LiveHypothesis const& hypothesis);
  std::array<List*, 15> all();
  Sequences sequences(List const& begin, List const& length) const;

  bool first_ = false;
  List id_, position_, written_, newest_;
  List query_begin_, query_length_, key_begin_, key_length_, source_begin_, source_length_;
  List copied_, copies_, source_written_, state_, previous_state_;
};

/// Brings a step's integers to kernels' memory with one copy, as packs do.
class StepUpload {
 public:
  struct Uploaded {
    Model::DecodeTokens tokens;
    DecodeStep step;
  };
  struct Rows {
    std::int64_t tokens = 0;
    std::int64_t sources = 0;
    std::int64_t states = 0;
  };
  /// The result is valid until the next call, before which the host must wait for kernels.
  Uploaded upload(StepLists& lists, Rows const& rows);

 private:
  UploadedTensor memory_;
};

}  // namespace heddle
