#include <fmt/format.h>

#include <heddle/core/layers/low_rank.hpp>
#include <heddle/core/layers/traits.hpp>
#include <heddle/core/operations/gemm.hpp>
#include <heddle/core/parallel/mesh.hpp>
#include <heddle/core/parameters/update_rules.hpp>

namespace heddle {

Cost linear_cost(LayerLoad const& load, std::int64_t inputs, std::int64_t outputs) {
  Cost const of_a_token =
      cost(GemmProblem{.dtype = load.dtype, .output_dtype = load.dtype, .m = 1, .n = outputs, .k = inputs});
  auto const element = static_cast<double>(size_of(load.dtype));
  double const matrix = element * static_cast<double>(inputs * outputs);  // read once, whatever the tokens
  return {load.tokens * of_a_token.operations, load.tokens * (of_a_token.bytes - matrix) + matrix};
}

Cost projection_cost(ModelConfig const& keys, LayerLoad const& load, std::string const& name, std::int64_t inputs,
                     std::int64_t outputs) {
  Cost cost = linear_cost(load, inputs, outputs);
  if (is_frozen(keys.frozen, name + ".weight")) {
    cost = 2.0 / 3 * cost;
  }
  if (has_adapter(keys.adapter, name)) {
    cost += linear_cost(load, inputs, keys.adapter.rank) + linear_cost(load, keys.adapter.rank, outputs);
  }
  return cost;
}

std::optional<std::string> uneven_over_tensor(std::string const& key, std::int64_t count, LayerUse const& use) {
  if (count % use.tensor == 0) {
    return std::nullopt;
  }
  return fmt::format("{} = {} cannot be divided among parallel.tensor = {}, which may be {}", key, count, use.tensor,
                     list_divisors(count));
}

std::string list_divisors(std::int64_t number) {
  std::vector<int> divisors = divisors_of(static_cast<int>(number));
  std::string const last = std::to_string(divisors.back());
  divisors.pop_back();
  return divisors.empty() ? last : fmt::format("{} and {}", fmt::join(divisors, ", "), last);
}

}  // namespace heddle
