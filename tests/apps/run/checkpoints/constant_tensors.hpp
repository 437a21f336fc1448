#pragma once

#include <heddle/core/parallel/tensor_stream.hpp>

#include "test.hpp"

namespace heddle {

/// Tensors whose elements are all one number. For one rank.
class ConstantTensors final : public TensorStream {
 public:
  ConstantTensors(std::vector<StreamedTensor> tensors, float number) : tensors_(std::move(tensors)), number_(number) {}

  std::vector<StreamedTensor> const& tensors() const override { return tensors_; }
  void send(TensorChunk const& /*chunk*/, int /*receiver*/) override { ADD_FAILURE() << "there is no other rank"; }
  void receive(TensorChunk const& /*chunk*/, std::span<float> elements) override {
    std::ranges::fill(elements, number_);
  }
  void wait() override {}

 private:
  std::vector<StreamedTensor> tensors_;
  float number_;
};

}  // namespace heddle
