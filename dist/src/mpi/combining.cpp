#include <algorithm>
#include <array>
#include <cstring>
#include <heddle/core/base/cpu_level.hpp>
#include <heddle/core/operations/dispatch.hpp>

#include "bfloat16_sums.hpp"
#include "rank_order_reduction.hpp"

namespace heddle {

namespace {

constexpr std::int64_t block = 2048;

template <class Element, class Combine>
void combine_parts(std::vector<void const*> const& parts, void* result, std::int64_t count, Combine const& combine) {
  using Sum = kernels::ArithmeticType<Element>;
  std::array<Sum, block> sums;
  for (std::int64_t begin = 0; begin < count; begin += block) {
    std::int64_t const here = std::min(block, count - begin);
    auto const of = [&](std::size_t part) { return static_cast<Element const*>(parts[part]) + begin; };
    std::transform(of(0), of(0) + here, of(1), sums.begin(),
                   [&](Element one, Element other) { return combine(static_cast<Sum>(one), static_cast<Sum>(other)); });
    for (std::size_t part = 2; part < parts.size(); ++part) {
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

bool has_v4() {
  static bool const has = usable_cpu_level() >= CpuLevel::v4;
  return has;
}

void add_bfloat16(std::vector<void const*> const& parts, void* result, std::int64_t count) {
  std::vector<BFloat16Bits const*> lists(parts.size());
  std::ranges::transform(parts, lists.begin(), [](void const* part) { return static_cast<BFloat16Bits const*>(part); });
  add_bfloat16_with_v4(lists.data(), lists.size(), static_cast<BFloat16Bits*>(result), count);
}

}  // namespace

void combine_parts(DType dtype, ReduceOp op, std::vector<void const*> const& parts, void* result, std::int64_t count) {
  if (parts.size() == 1) {
    if (count > 0) {
      std::memmove(result, parts.front(), static_cast<std::size_t>(count) * size_of(dtype));
    }
    return;
  }
  if (dtype == DType::bfloat16 && op == ReduceOp::sum && has_v4()) {
    return add_bfloat16(parts, result, count);
  }
  kernels::ElementTypes<float, BFloat16, std::int32_t, double>::with(
      dtype, [&]<class Element>(Element) { combine_parts<Element>(parts, result, count, op); });
}

}  // namespace heddle
