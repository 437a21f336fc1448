#include <boost/json.hpp>
#include <heddle/core/config/config.hpp>
#include <heddle/core/config/json_schema.hpp>

#include "test.hpp"

namespace heddle {
namespace {

namespace json = boost::json;

/// The schema of a key or table, by its path in the configuration: "optimizer.group.NAME.frozen".
json::value const& at(json::value const& schema, std::string path) {
  json::value const* found = &schema;
  while (!path.empty()) {
    std::size_t const end = std::min(path.find('.'), path.size());
    std::string const name = path.substr(0, end);
    path.erase(0, std::min(end + 1, path.size()));
    json::object const& object = found->as_object();
    found = name == "NAME" ? &object.at("additionalProperties") : &object.at("properties").at(name);
  }
  return *found;
}

class ConfigSchemaTest : public testing::Test {
 protected:
  json::value schema_ = json::parse(config_json_schema());
};

TEST_F(ConfigSchemaTest, HasTheTypesRangesAndDefaultsOfKeys) {
  EXPECT_EQ(schema_.at("$schema"), "http://json-schema.org/draft-04/schema#");
  json::object const& steps = at(schema_, "train.steps").as_object();
  EXPECT_EQ(steps.at("type"), "number");
  EXPECT_EQ(steps.at("multipleOf"), 1) << "1e6 is an integer, too";
  EXPECT_EQ(steps.at("minimum"), 1.0);
  EXPECT_EQ(steps.at("maximum"), 2147483647.0);
  EXPECT_EQ(steps.at("default"), TrainConfig().steps);
  EXPECT_EQ(steps.at("description"), "optimizer updates");
  json::object const& dropout = at(schema_, "model.dropout").as_object();
  EXPECT_EQ(dropout.at("exclusiveMaximum"), true);
  EXPECT_FALSE(dropout.contains("multipleOf"));
  EXPECT_EQ(at(schema_, "model.norm").at("enum"), (json::array{"post", "pre", "both", "output"}));
  EXPECT_EQ(at(schema_, "parallel.data").at("anyOf").at(1).at("enum"), json::array{"auto"});
  EXPECT_EQ(at(schema_, "data.train").at("anyOf").at(0).at("type"), "string") << "one file, or a list of them";
  EXPECT_EQ(at(schema_, "model.stacks").at("items").at("minLength"), 1);
}

TEST_F(ConfigSchemaTest, HasTablesOfAnyNameAndRefusesOtherKeys) {
  EXPECT_EQ(schema_.at("additionalProperties"), false);
  EXPECT_EQ(at(schema_, "train").at("additionalProperties"), false);
  EXPECT_EQ(at(schema_, "data.corpus.NAME.weight").at("type"), "number");
  EXPECT_EQ(at(schema_, "data.valid_sets.NAME").at("type"), "string");
  EXPECT_EQ(at(schema_, "optimizer.group.NAME.frozen").at("type"), "boolean");
  EXPECT_EQ(at(schema_, "model.decoder.layer.NAME.activation").at("type"), "string");
  EXPECT_EQ(at(schema_, "model.decoder.layers"), at(schema_, "model.decoder_layers")) << "two spellings of one key";
  EXPECT_EQ(at(schema_, "model.decoder.NAME").at("type"), "object") << "options of a sublayer";
  EXPECT_EQ(at(schema_, "kernels.NAME").at("type"), "string") << "operations of plug-ins";
  EXPECT_TRUE(at(schema_, "optimizer.NAME").is_object()) << "options of update rules";
}

TEST_F(ConfigSchemaTest, HasEveryKeyOfAConfiguration) {
  std::int64_t keys = 0;
  std::string section;
  for (std::string const& line : lines_of(to_toml(Config()))) {
    if (line.starts_with('[')) {
      section = line.substr(1, line.size() - 2);
    } else if (std::size_t const end = line.find(" = "); end != line.npos) {
      EXPECT_NO_THROW(at(schema_, section + "." + line.substr(0, end))) << section << " " << line;
      ++keys;
    }
  }
  EXPECT_GT(keys, 100);
}

}  // namespace
}  // namespace heddle
