#include <heddle/core/tasks/task.hpp>

namespace heddle {

namespace {

class Translation final : public Task {
 public:
  std::string meaning() const override { return "predicts the targets of pairs from their sources"; }
  std::string unsupported_reason(ModelConfig const& model) const override {
    return model.is_encoder_decoder() ? "" : "needs an encoder and a decoder";
  }
  SampleFields fields() const override { return {SampleField::weights}; }
  std::optional<PairForm> pairs(bool /*prefixes*/) const override { return PairForm::pairs; }
  bool translates() const override { return true; }
};

}  // namespace

std::shared_ptr<Task const> make_translation() {
  return std::make_shared<Translation>();
}

}  // namespace heddle
