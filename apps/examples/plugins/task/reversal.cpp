// A plug-in: the task "reversal", in which an encoder-decoder model learns to write text backwards.

#include <heddle/core/plugins/entry.hpp>
#include <heddle/core/tasks/task.hpp>
#include <memory>
#include <string>
#include <vector>

namespace reversal_plugin {

using Ids = std::vector<std::int32_t>;

/// Makes a sample of each sequence of text: the source is the text, the target its tokens from the last to the first.
/// An end token is added to both, so that a sequence's own last one is left out.
class Samples final : public heddle::TextTask {
 public:
  explicit Samples(heddle::TextTaskSpec const& spec) : ids_{spec.ids, spec.ids} {}

  std::int64_t reserved_tokens() const override { return 1; }  // for the end token of a sequence that has none
  heddle::SampleCost cost(heddle::TextShape const& shape) const override {
    return {tokens(shape) + 1, tokens(shape) + 1};
  }
  std::int64_t predicted(heddle::TextShape const& shape) const override { return tokens(shape) + 1; }
  void fill(heddle::PackFields& into, std::vector<heddle::TextSequence> sequences) const override {
    std::vector<heddle::Sample> pairs;
    for (heddle::TextSequence const& text : sequences) {
      auto const end = text.tokens.begin() + tokens(text);
      pairs.push_back(
          {text.number, Ids(text.tokens.begin(), end), Ids(std::make_reverse_iterator(end), text.tokens.rend())});
    }
    heddle::fill_tokens(into, pairs, ids_);
  }

 private:
  static std::int64_t tokens(heddle::TextShape const& shape) { return shape.length - (shape.complete ? 1 : 0); }

  heddle::SideIds ids_;
};

class Reversal final : public heddle::Task {
 public:
  std::string meaning() const override { return "writes text backwards"; }
  std::string unsupported_reason(heddle::ModelConfig const& model) const override {
    return model.is_encoder_decoder() ? "" : "needs an encoder and a decoder";
  }
  std::unique_ptr<heddle::TextTask> text(heddle::TextTaskSpec const& spec) const override {
    return std::make_unique<Samples>(spec);
  }
};

void register_all(heddle::Registries& registries) {
  registries.tasks.add("reversal", std::make_shared<Reversal>());
}

}  // namespace reversal_plugin

HEDDLE_PLUGIN(reversal_plugin::register_all)
