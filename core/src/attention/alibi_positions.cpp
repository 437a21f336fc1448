#include <bit>
#include <cmath>
#include <heddle/core/tensor/tensor.hpp>

#include "attention_position_kinds.hpp"

namespace heddle {

namespace {

/// The slope of each head, as in the paper's code: a geometric sequence that ends with 2^-8 for numbers of heads that
/// are powers of two; for others that of the next lower power, then every other slope of the next higher one.
std::vector<double> slopes(std::int64_t heads) {
  auto const lower = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(heads)));
  std::vector<double> result;
  for (std::int64_t head = 0; head < heads; ++head) {
    // Head `lower` + j has slope 2j of twice as many heads.
    double const place = head < lower ? static_cast<double>(head + 1) : static_cast<double>(head - lower) + 0.5;
    result.push_back(std::exp2(-8 * place / static_cast<double>(lower)));
  }
  return result;
}

template <class Element>
Tensor slope_table(std::vector<double> const& slope, std::int64_t max_length) {
  std::int64_t const columns = 2 * max_length - 1;
  std::vector<Element> host;
  for (double const each : slope) {
    for (std::int64_t column = 0; column < columns; ++column) {
      host.push_back(static_cast<Element>(-each * static_cast<double>(std::abs(column - (max_length - 1)))));
    }
  }
  return from_host<Element>(host, {static_cast<std::int64_t>(slope.size()), columns});
}

/// Scores fall with the distance of query and key, by a fixed slope for each head (Press et al. 2022). Keys on both
/// sides of a query that sees them fall alike.
class AlibiPositions final : public AttentionPositions {
 public:
  explicit AlibiPositions(AttentionPositionsSpec const& spec) : heads_(spec.heads) {
    std::vector<double> const all = slopes(heads_);
    // add_layer refuses heads that the tensor group's ranks do not share evenly.
    IndexRange const mine = share(heads_, spec.stack.parallel.tensor.rank(), spec.stack.parallel.tensor.size());
    std::vector<double> const own(all.begin() + mine.begin, all.begin() + mine.end);
    std::int64_t const length = spec.stack.model.max_length;
    bias_ = statistics_dtype(spec.stack.dtype) == DType::float64 ? slope_table<double>(own, length)
                                                                 : slope_table<float>(own, length);
  }

  void add_layer(LayerSpec const& spec, std::int64_t heads, std::int64_t /*head_dim*/) override {
    require_heads_of_stack(spec, heads, heads_);
  }

  bool has_bias() const override { return true; }
  Tensor bias(LayerContext& /*context*/) const override { return bias_; }

 private:
  std::int64_t heads_;
  Tensor bias_;  ///< [this rank's heads, 2 * max_length - 1]
};

}  // namespace

std::shared_ptr<AttentionPositions> make_alibi_positions(AttentionPositionsSpec const& spec) {
  return std::make_shared<AlibiPositions>(spec);
}

}  // namespace heddle
