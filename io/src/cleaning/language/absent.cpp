#include <heddle/core/base/error.hpp>

#include "cleaning/language/language_models.hpp"

namespace heddle {

struct LanguageModels::Classifiers {};

std::string LanguageModels::unsupported_reason() {
  return "this build has no libexttextcat (Debian: libexttextcat-dev)";
}

std::vector<std::string> LanguageModels::known() {
  return {};
}

LanguageModels::LanguageModels(std::vector<std::string> /*languages*/) {
  throw Error(unsupported_reason());
}
LanguageModels::~LanguageModels() = default;
LanguageModels::LanguageModels(LanguageModels&&) noexcept = default;
LanguageModels& LanguageModels::operator=(LanguageModels&&) noexcept = default;

std::vector<std::string> LanguageModels::candidates(std::string_view /*text*/) const {
  return {};
}

}  // namespace heddle
