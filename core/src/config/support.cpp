#include <fmt/format.h>

#include <heddle/core/base/error.hpp>
#include <heddle/core/config/config.hpp>

namespace heddle {
namespace {

void require_given(std::string_view key, std::string const& value, std::string_view example) {
  if (value.empty()) {
    throw ConfigError(fmt::format("{} is not set, and training needs it; for example {} = \"{}\"", key, key, example));
  }
}

}  // namespace

void require_supported(Config const& config) {
  require_given("run.directory", config.run.directory, "runs/first");
  require_given("data.train", config.data.train, "data/demo/train.h5");
  if (config.train.validate_every > 0) {
    require_given("data.valid", config.data.valid, "data/demo/valid.h5");
  }
}

}  // namespace heddle
