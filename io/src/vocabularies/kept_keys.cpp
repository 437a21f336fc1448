#include "vocabularies/kept_keys.hpp"

#include <boost/json.hpp>
#include <heddle/core/config/config.hpp>
#include <string>
#include <string_view>

namespace heddle {

namespace {

namespace json = boost::json;

/// Keys of generation, which files of earlier versions of transformers have in config.json.
constexpr std::string_view generation_keys =
    " bad_words_ids begin_suppress_tokens diversity_penalty do_sample early_stopping encoder_no_repeat_ngram_size "
    "encoder_repetition_penalty exponential_decay_length_penalty length_penalty max_length min_length "
    "no_repeat_ngram_size num_beam_groups num_beams num_return_sequences penalty_alpha remove_invalid_values "
    "renormalize_logits repetition_penalty suppress_tokens task_specific_params temperature top_k top_p typical_p "
    "use_cache ";

/// Whether a key of config.json is about the vocabulary or about generation, of which no key here says anything.
bool is_kept(std::string_view key) {
  return key.ends_with("vocab_size") || key.ends_with("_token_id") || key.ends_with("_token_ids") ||
         generation_keys.find(" " + std::string(key) + " ") != generation_keys.npos;
}

}  // namespace

void copy_kept_keys(json::object const& from, json::object& into) {
  for (auto const& [key, value] : from) {
    json::value* const object = into.if_contains(key);
    if (is_kept(key)) {
      into[key] = value;
    } else if (value.is_object() && object != nullptr && object->is_object()) {
      copy_kept_keys(value.get_object(), object->get_object());
    }
  }
}

void repeat_kept_keys(json::object& config) {
  json::object const all = config;
  for (StackKind const& kind : stack_kinds) {
    json::value* const stack = config.if_contains(kind.name);
    if (stack != nullptr && stack->is_object()) {
      std::ranges::for_each(all, [&](auto const& entry) {
        if (is_kept(entry.key())) {
          stack->get_object()[entry.key()] = entry.value();
        }
      });
    }
  }
}

}  // namespace heddle
