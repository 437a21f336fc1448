#include <algorithm>
#include <boost/json.hpp>
#include <iterator>

#include "exchange/family_tables.hpp"

namespace heddle {

void add(TensorRules& rules, std::string const& theirs, std::string const& ours, TensorChange const& change) {
  rules.push_back({theirs + ".weight", ours + ".weight", change});
  rules.push_back({theirs + ".bias", ours + ".bias"});
}

void add_attention(TensorRules& rules, std::string const& theirs, std::string const& ours,
                   ProjectionNames const& names) {
  ProjectionNames const own{"q", "k", "v", "out"};
  for (std::size_t index = 0; index < own.size(); ++index) {
    add(rules, theirs + "." + names.at(index), ours + "." + own.at(index));
  }
}

std::vector<KeyRule::Value> plain_activations() {
  return {{"\"relu\"", "relu"},          {"\"gelu\"", "gelu"},
          {"\"gelu_new\"", "gelu_tanh"}, {"\"gelu_pytorch_tanh\"", "gelu_tanh"},
          {"\"silu\"", "silu"},          {"\"swish\"", "silu"}};
}

bool is_true(boost::json::object const& config, char const* key, bool absent) {
  boost::json::value const* const found = find_key(config, key);
  return found == nullptr || !found->is_bool() ? absent : found->get_bool();
}

std::int64_t layers_at(boost::json::object const& config, char const* key, std::int64_t absent) {
  boost::json::value const* const found = find_key(config, key);
  return std::min(found == nullptr || !found->is_int64() ? absent : found->get_int64(), max_foreign_layers);
}

std::span<Family const> families() {
  static std::vector<Family> const all = [] {
    std::vector<Family> joined = encoder_decoder_families();
    for (auto const& kind : {decoder_families, gemma_families, encoder_families}) {
      std::ranges::move(kind(), std::back_inserter(joined));
    }
    return joined;
  }();
  return all;
}

}  // namespace heddle
