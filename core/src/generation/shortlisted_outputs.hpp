#pragma once

#include <heddle/core/generation/generation.hpp>
#include <heddle/core/model/model.hpp>
#include <heddle/core/tensor/uploaded_tensor.hpp>
#include <list>
#include <vector>

#include "step_lists.hpp"
#include "token_choice.hpp"

namespace heddle {

/// The output projections of the models for the tokens in any live sentence's shortlist. One product computes the
/// logits of all sentences; each is then ranked over its own tokens only, so that a sentence's result does not depend
/// on the others' tokens.
class ShortlistedOutputs {
 public:
  explicit ShortlistedOutputs(std::vector<WeightedModel> const& members)
      : members_(members), selections_(members.size()) {}

  /// Selects the tokens of these sentences, where they are others than at the last call: some are `entering`, or half
  /// of them have left, so that a smaller product pays for its copy of the weights. Waits for kernels.
  void select(LayerContext& context, std::list<Sentence>& live, std::list<Sentence>& entering);
  OutputSelection const& selection(std::size_t member) const { return selections_[member]; }
  /// The tokens that each sentence's rows are ranked over.
  std::vector<RankedColumns> columns(std::list<Sentence> const& sentences) const;

 private:
  std::vector<WeightedModel> members_;
  std::vector<OutputSelection> selections_;
  std::size_t sentences_ = 0;  ///< at the last selection
  UploadedTensor tokens_;      ///< selected
  UploadedTensor columns_;     ///< of the sentences' tokens among them, sentence after sentence
};

}  // namespace heddle
