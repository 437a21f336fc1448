#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <heddle/core/base/error.hpp>
#include <heddle/io/formats/foreign_tensors.hpp>
#include <string>
#include <vector>

#include "families/family_tables.hpp"

// Which tables of tokens a model of another system has. Its files may have one table under several names, or tables
// that differ under names that config.json calls one: what the tensors are decides, as it does for transformers 5.

namespace heddle {

namespace {

namespace json = boost::json;

constexpr std::int64_t compared_at_once = std::int64_t{1} << 18;

std::string first_of(std::initializer_list<std::string> names) {
  auto const* const found = std::ranges::find_if(names, [](std::string const& name) { return !name.empty(); });
  return found == names.end() ? "" : *found;
}

std::string joined(std::initializer_list<std::string_view> names) {
  std::string all;
  for (std::string_view const name : names) {
    all.append(name.empty() || all.empty() ? "" : "|").append(name);
  }
  return all;
}

}  // namespace

std::string present_name(Family const& family, ForeignTensors const& tensors, std::string const& name) {
  std::string_view const prefix = family.optional_prefix;
  std::string const bare = name.starts_with(prefix) ? name.substr(prefix.size()) : name;
  return tensors.tensors().contains(name) ? name : tensors.tensors().contains(bare) ? bare : "";
}

bool are_equal(ForeignTensors const& tensors, std::string const& one, std::string const& other) {
  std::int64_t const size = tensors.tensors().at(one).elements();
  if (one == other || tensors.tensors().at(one).shape != tensors.tensors().at(other).shape) {
    return one == other;
  }
  std::vector<float> first, second;
  for (std::int64_t begin = 0; begin < size; begin += compared_at_once) {
    IndexRange const elements{begin, std::min(begin + compared_at_once, size)};
    first.resize(static_cast<std::size_t>(elements.count()));
    second.resize(first.size());
    tensors.read(one, elements, first);
    tensors.read(other, elements, second);
    if (first != second) {
      return false;
    }
  }
  return true;
}

void complete_config(Family const& family, json::object& config, ForeignTensors const& tensors) {
  for (auto const& [alias, key] : family.aliases) {
    if (json::value const* const value = find_key(config, alias);
        value != nullptr && find_key(config, key) == nullptr) {
      config[key] = json::value(*value);
    }
  }
  if (family.complete != nullptr) {
    family.complete(config, tensors);
  }
  TableNames const& names = family.tables;
  auto const present = [&](std::string_view name) { return present_name(family, tensors, std::string(name)); };
  std::string const shared = present(names.shared);
  std::string const encoder = first_of({present(names.encoder), shared});
  std::string const decoder = first_of({present(names.decoder), shared});
  std::string const output = first_of({present(names.output), shared, decoder});
  if (names.shared.empty() || decoder.empty() || encoder.empty()) {
    return;  // the error is that of a missing tensor
  }
  auto const rule_of = [&](std::string_view key) { return std::ranges::find(family.keys, key, &KeyRule::theirs); };
  auto const tying = rule_of("tie_word_embeddings");
  bool const one_name = flag_at(config, "tie_word_embeddings", tying != family.keys.end() && tying->absent == "true");
  if (!one_name && present(names.output).empty()) {
    throw DataError(
        "there is no tensor {}, and config.json's tie_word_embeddings says that it is not the table of the tokens; the "
        "model must have been saved with its head, as {}",
        names.output, family.architecture);
  }
  bool const tied = one_name && are_equal(tensors, output, decoder) &&
                    (names.output_is_decoders || shared.empty() || are_equal(tensors, shared, decoder));
  config["tie_word_embeddings"] = tied;
  if (!names.encoder.empty()) {
    bool const separate =
        !are_equal(tensors, encoder, decoder) || !flag_at(config, "share_encoder_decoder_embeddings", true);
    bool const may_share = tied || rule_of(shared_inputs_key) != family.keys.end();
    set_own_key(config, separate_tables_key, separate || !may_share);
    set_own_key(config, shared_inputs_key, !separate && !tied && may_share);
  }
}

void add_tables(TensorRules& rules, TableNames const& names, std::string const& stack) {
  auto const& [shared, encoder, decoder, output, output_is_decoders] = names;
  rules.push_back({joined({shared, encoder, decoder, output}), "embedding.weight", {}, tied});
  rules.push_back({joined({shared, encoder, decoder}), "embedding.weight", {}, untied});
  if (stack.empty()) {
    rules.push_back({joined({encoder, shared}), "encoder.embedding.weight"});
    rules.push_back({output_is_decoders ? joined({decoder, shared, output}) : joined({shared, decoder, output}),
                     "decoder.embedding.weight",
                     {},
                     tied});
    rules.push_back({joined({decoder, shared}), "decoder.embedding.weight", {}, untied});
  } else {
    rules.push_back({std::string(shared), stack + ".embedding.weight"});
  }
  rules.push_back({joined({output, shared}), "output.weight"});
}

}  // namespace heddle
