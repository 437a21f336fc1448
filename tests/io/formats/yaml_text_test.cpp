#include "formats/yaml_text.hpp"

#include <boost/json.hpp>

#include "test.hpp"

namespace heddle {
namespace {

namespace json = boost::json;

TEST(YamlText, TheFilesOfMarianAreRead) {
  json::object const map = parse_yaml_map(
      "# a comment\n"
      "dec-depth: 6\n"
      "dim-vocabs:\n"
      "  - 32000\n"
      "  - 32001\n"
      "transformer-tied-layers:\n"
      "  []\n"
      "input-types: []\n"
      "types: [a, \"b, c\", 3 ]  # three\n"
      "vocabs:\n"
      "- 'it''s'\n"
      "empty: \"\"\n"
      "nothing:\n"
      "ulr: false\n"
      "normalize: 0.6\n"
      "version: v1.9.0 ba94c5b 2020-05-17 10:42:17 +0100\n",
      "test");
  EXPECT_EQ(json::value(map), json::parse(R"({"dec-depth": 6, "dim-vocabs": [32000, 32001],
      "transformer-tied-layers": [], "input-types": [], "types": ["a", "b, c", 3], "vocabs": ["it's"], "empty": "",
      "nothing": null, "ulr": false, "normalize": 0.6, "version": "v1.9.0 ba94c5b 2020-05-17 10:42:17 +0100"})"));
}

TEST(YamlText, KeysOfVocabulariesAreTexts) {
  json::object const map = parse_yaml_map(
      "\"</s>\": 0\n"
      "▁the: 1\n"
      "1999: 2\n"
      "\"\\\"\": 3\n"
      "\"\\\\\": 4\n"
      "\"\\x85\": 5\n"
      "\"\\u2028\": 6\n"
      "'''': 7\n"
      "a:b: 8\n"
      "? \"a long key\"\n"
      ": 9\n"
      "? another\n"
      ": 10\n"
      "\"#\": 11\n"
      "true: 12\n",
      "test");
  std::vector<std::string> const keys{"</s>", "▁the", "1999",       "\"",      "\\", "\xc2\x85", "\xe2\x80\xa8",
                                      "'",    "a:b",  "a long key", "another", "#",  "true"};
  ASSERT_EQ(map.size(), keys.size());
  for (std::size_t id = 0; id < keys.size(); ++id) {
    ASSERT_TRUE(map.contains(keys[id])) << keys[id];
    EXPECT_EQ(map.at(keys[id]), id);
  }
}

TEST(YamlText, WhatIsWrittenIsReadAgain) {
  json::object const map{{"text", "a \"b\" \\ \t# c: d"},
                         {"list", json::array{"x", 1, 0.5}},
                         {"none", json::array{}},
                         {"number", 0.6},
                         {"flag", true},
                         {"spaces", "  "}};
  EXPECT_EQ(json::value(parse_yaml_map(yaml_text(map), "test")), json::value(map));
}

TEST(YamlText, MapsAndListsMayBeInOneAnother) {
  EXPECT_EQ(json::value(parse_yaml_map(
                "start:\n  mix:\n  - clean 0.8\n  modifiers: &m\n  - Typos: 0.05\n    swap: 1\nend: *m\n", "test")),
            json::parse(R"({"start": {"mix": ["clean 0.8"], "modifiers": [{"Typos": 0.05, "swap": 1}]},
                            "end": [{"Typos": 0.05, "swap": 1}]})"));
}

TEST(YamlText, WhatIsNotAMapIsRefusedByLine) {
  for (std::string const text : {"a: *x\n", "- a\n", "a: 1\n  b: 2\n", "a: 1\n- b\n", "a: [1, 2\n", "a: \"\\q\"\n",
                                 "a: \"\\u12\"\n", "a: \"\\UFFFFFFFF\"\n", "a: \"b\" c\n", "a: 1\na: 2\n"}) {
    EXPECT_THAT(message_of<DataError>([&] { parse_yaml_map("x: 1\n" + text, "test"); }), HasSubstr("test: line "))
        << text;
  }
}

}  // namespace
}  // namespace heddle
