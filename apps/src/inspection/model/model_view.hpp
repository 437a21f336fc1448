#pragma once

#include <boost/json.hpp>
#include <heddle/model.hpp>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "inference/probe.hpp"

namespace heddle {

/// A sentence and, for a model that translates, its translation; the default is the model's own.
struct SentenceText {
  std::string source;
  std::optional<std::string> target;
};

/// Reads at most `max` lines "SOURCE<TAB>TARGET" or "SOURCE". Throws DataError for a file without lines.
std::vector<SentenceText> read_sentences(std::string const& path, std::size_t max);

/// A trained model whose attention is drawn.
class ModelView {
 public:
  /// Throws as TrainedModel::open and choose_languages do.
  static ModelView open(TrainedModelOptions options, Languages const& languages);

  ModelDescription const& description() const { return description_; }
  Task const& task() const { return model_->task(); }

  /// The attention of each sentence and its search: {"sentences", "masks", "positions"}. Sentences that are left
  /// out are named in `notes`.
  boost::json::object to_json(std::vector<SentenceText> const& texts, std::int64_t beam_size,
                              std::vector<std::string>& notes);

  /// [[source, reference, translation], …] of pairs that are not too long, by beam search; empty where the model does
  /// not translate.
  boost::json::array translations(std::vector<SentenceText> const& pairs, std::int64_t beam_size);

 private:
  /// A sentence as token ids, with its languages' and without begin and end tokens.
  struct Sentence {
    std::vector<std::int32_t> source, target;
    boost::json::object search;  ///< empty: none
  };

  ModelView() = default;
  bool has_source() const { return description_.keys.is_encoder_decoder(); }
  std::optional<Sentence> encode(SentenceText const& text, std::int64_t beam_size, std::vector<std::string>& notes);
  PackFields tokens_of(std::vector<Sentence> const& sentences) const;
  TokenSequence sequence_of(Sentence const& sentence, std::int32_t number) const;
  /// The pieces of a sequence of the pack; of a model without a source both sides are the same.
  boost::json::array pieces(PackFields const& pack, std::size_t sequence, Side side) const;

  ModelDescription description_;
  std::shared_ptr<AttentionProbe> attention_;
  std::shared_ptr<EmbeddingProbe> embedding_;
  std::unique_ptr<TrainedModel> model_;
};

}  // namespace heddle
