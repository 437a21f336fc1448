#include <fmt/format.h>

#include <heddle/core/base/error.hpp>
#include <heddle/core/config/config.hpp>

namespace heddle {
namespace {

void require_given(std::string_view key, bool given, std::string_view example) {
  if (!given) {
    throw ConfigError(fmt::format("{} is not set, and training needs it; for example {} = \"{}\"", key, key, example));
  }
}

}  // namespace

void require_supported(Config const& config) {
  require_given("run.directory", !config.run.directory.empty(), "runs/first");
  require_given("data.train", !config.data.train.empty(), "data/demo/train.h5");
  if (config.train.validate_every > 0) {
    require_given("data.valid", !config.data.valid.empty(), "data/demo/valid.h5");
  }
}

}  // namespace heddle
