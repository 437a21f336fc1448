#pragma once

#include <boost/json.hpp>
#include <heddle/io/tokenizers/tokenizer.hpp>
#include <heddle/io/vocabularies/tokenizer_json.hpp>

#include "test.hpp"

namespace heddle {

/// The bytes of a file in tests/golden/exchange.
inline std::string exchange_file(std::string const& name) {
  return read_whole(std::string(HEDDLE_TEST_DATA) + "/exchange/" + name);
}

/// Fails unless the tokenizer gives each line of PREFIX_lines.txt the ids of PREFIX_NAME.ids, which decode to the lines
/// of `texts`; "": any text.
inline void expect_golden_ids(Tokenizer const& tokenizer, std::string const& prefix, std::string const& name,
                              std::string const& texts) {
  auto const lines = lines_of(exchange_file(prefix + "_lines.txt"));
  auto const golden_ids = lines_of(exchange_file(prefix + "_" + name + ".ids"));
  auto const decoded = texts.empty() ? lines : lines_of(exchange_file(prefix + "_" + texts));
  ASSERT_GT(lines.size(), 50U);
  ASSERT_EQ(lines.size(), golden_ids.size());
  ASSERT_EQ(lines.size(), decoded.size());
  for (std::size_t i = 0; i < lines.size(); ++i) {
    auto const ids = tokenizer.encode(lines[i]);
    EXPECT_EQ(fmt::format("{}", fmt::join(ids, " ")), golden_ids[i]) << name << ": " << lines[i];
    EXPECT_TRUE(texts.empty() || tokenizer.decode(ids) == decoded[i]) << name << ": " << tokenizer.decode(ids);
  }
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

}  // namespace heddle
