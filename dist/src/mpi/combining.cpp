#include <algorithm>
#include <array>

#include "rank_order_reduction.hpp"

namespace heddle {

namespace {

constexpr std::int64_t block = 2048;

/// The type in which elements are added.
template <class Element>
struct SumOf {
  using Type = Element;
};
template <>
struct SumOf<BFloat16> {
  using Type = float;
};

template <class Element, class Combine>
void combine_parts(std::vector<void const*> const& parts, void* result, std::int64_t count, Combine const& combine) {
  using Sum = typename SumOf<Element>::Type;
  std::array<Sum, block> sums;
  for (std::int64_t begin = 0; begin < count; begin += block) {
    std::int64_t const here = std::min(block, count - begin);
    auto const of = [&](std::size_t part) { return static_cast<Element const*>(parts[part]) + begin; };
    std::transform(of(0), of(0) + here, sums.begin(), [](Element element) { return static_cast<Sum>(element); });
    for (std::size_t part = 1; part < parts.size(); ++part) {
      Element const* const addends = of(part);
      for (std::int64_t index = 0; index < here; ++index) {
        auto& sum = sums[static_cast<std::size_t>(index)];
        sum = combine(sum, static_cast<Sum>(addends[index]));
      }
    }
    std::transform(sums.begin(), sums.begin() + here, static_cast<Element*>(result) + begin,
                   [](Sum sum) { return static_cast<Element>(sum); });
  }
}

template <class Element>
void combine_parts(std::vector<void const*> const& parts, void* result, std::int64_t count, ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
      return combine_parts<Element>(parts, result, count, [](auto left, auto right) { return left + right; });
    case ReduceOp::max:
      return combine_parts<Element>(parts, result, count, [](auto left, auto right) { return std::max(left, right); });
    case ReduceOp::min:
      return combine_parts<Element>(parts, result, count, [](auto left, auto right) { return std::min(left, right); });
  }
}

}  // namespace

void combine_parts(DType dtype, ReduceOp op, std::vector<void const*> const& parts, void* result, std::int64_t count) {
  switch (dtype) {
    case DType::float32:
      return combine_parts<float>(parts, result, count, op);
    case DType::bfloat16:
      return combine_parts<BFloat16>(parts, result, count, op);
    case DType::int32:
      return combine_parts<std::int32_t>(parts, result, count, op);
    case DType::float64:
      return combine_parts<double>(parts, result, count, op);
  }
}

}  // namespace heddle
