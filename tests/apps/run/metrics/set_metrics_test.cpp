#include <heddle/core/config/config.hpp>

#include "run/metrics/measure.hpp"
#include "test.hpp"

namespace heddle {
namespace {

TEST(MetricsOfASet, AreItsOwnOrThoseOfAll) {
  std::string const text =
      "[data]\nvalid = \"v.h5\"\n[data.valid_sets]\nlegal = \"l.h5\"\nmedical = \"m.h5\"\n"
      "[data.valid_metrics]\nmedical = [\"ter\", \"chrf\"]\n[train]\nvalidate_metrics = [\"bleu\"]\nvalidate_bleu = "
      "false";
  Config const config = parse_config(text, "test");
  EXPECT_EQ(parse_config(to_toml(config), "again").data.valid_metrics, config.data.valid_metrics);
  Registries registries;
  register_tasks(registries.tasks);
  for (char const* const name : {"bleu", "ter", "chrf"}) {
    registries.metrics.add(name, {[](TranslatedCorpus const&) { return 0.0; }, std::string(name) != "ter"});
  }
  std::vector<std::string> keys;
  for (Measure const& measure : measures(config, registries)) {
    keys.push_back(measure.key());
  }
  EXPECT_THAT(keys, testing::ElementsAre("valid_loss", "valid_bleu", "valid_loss/legal", "valid_bleu/legal",
                                         "valid_loss/medical", "valid_ter/medical", "valid_chrf/medical"));
  expect_config_error([] { parse_config("[data.valid_metrics]\nlegal = [\"ter\"]", "test"); },
                      "data.valid_metrics.legal are the metrics of a validation set that data.valid_sets does not");
}

}  // namespace
}  // namespace heddle
