#pragma once

#include <boost/json.hpp>
#include <heddle/io/vocabularies/tokenizer_json.hpp>
#include <string>

#include "temporary_directory.hpp"

namespace heddle::test {

/// The bytes of a file in tests/golden/exchange.
inline std::string exchange_file(std::string const& name) {
  return read_whole(std::string(HEDDLE_TEST_DATA) + "/exchange/" + name);
}

/// The model of a tokenizer.json whose checkpoint has these ids, "<unk>" and "<mask>" among them, and `rows` rows.
inline std::string byte_level_vocabulary(std::string const& tokenizer_json, SpecialIds const& ids, std::int64_t rows) {
  boost::json::object config{{"vocab_size", rows}};
  boost::json::object tokens;
  auto const add = [](boost::json::object& to, char const* key, std::int32_t id, boost::json::value const& value) {
    if (id != SpecialIds::absent) {
      to[key] = value;
    }
  };
  add(config, "decoder_start_token_id", ids.begin, ids.begin);
  add(config, "eos_token_id", ids.end, ids.end);
  add(config, "pad_token_id", ids.padding, ids.padding);
  add(tokens, "unk_token", ids.unknown, "<unk>");
  add(tokens, "mask_token", ids.mask, "<mask>");
  return read_json_vocabulary(
      {{"tokenizer.json", tokenizer_json}, {"special_tokens_map.json", boost::json::serialize(tokens)}}, config);
}

}  // namespace heddle::test
