#include <cmath>
#include <heddle/dist/pipeline/row_losses.hpp>

namespace heddle {

void RowLosses::clear() {
  for (std::size_t index = 0; index < used_; ++index) {
    micro_batches_[index].samples = Tensor();  // so that its pack's memory is free
  }
  used_ = 0;
}

Tensor RowLosses::add(Tensor const& samples) {
  std::int64_t const rows = samples.dim(0);
  if (used_ == micro_batches_.size()) {
    micro_batches_.emplace_back();
  }
  auto& [memory, losses, of_rows] = micro_batches_[used_++];
  if (memory.empty() || memory.dim(0) < rows) {
    memory = Tensor::allocate(dtype_, {rows + rows / 4, 2});  // the next steps may need more
  }
  losses = memory.rows(0, rows);
  of_rows = samples;
  return losses;
}

std::vector<double> RowLosses::sums(std::int64_t count, std::span<std::int32_t const> of_sample) const {
  std::vector<double> sums(static_cast<std::size_t>(count), 0.0);
  auto const add = [&](auto const& losses, std::vector<std::int32_t> const& samples) {
    for (std::size_t row = 0; row < samples.size(); ++row) {
      auto const group = static_cast<std::size_t>(of_sample[static_cast<std::size_t>(samples[row]) % of_sample.size()]);
      sums[group] += std::round(static_cast<double>(losses[2 * row + 1]) / unit);
    }
  };
  for (std::size_t index = 0; index < used_; ++index) {
    auto const& [memory, losses, of_rows] = micro_batches_[index];
    auto const samples = to_host<std::int32_t>(of_rows);
    dtype_ == DType::float64 ? add(to_host<double>(losses), samples) : add(to_host<float>(losses), samples);
  }
  return sums;
}

}  // namespace heddle
