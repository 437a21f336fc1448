#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace heddle {

/// Tells languages by the frequent n-grams of their texts (Cavnar and Trenkle 1994), with the models of libexttextcat.
/// A build without that library has the same functions, which refuse.
class LanguageModels {
 public:
  /// Why there are none in this build; "" where there are.
  static std::string unsupported_reason();
  /// The languages that can be named: "de", "zh-Hans".
  static std::vector<std::string> known();

  /// Loads the models of these languages.
  explicit LanguageModels(std::vector<std::string> languages);
  ~LanguageModels();
  LanguageModels(LanguageModels&&) noexcept;
  LanguageModels& operator=(LanguageModels&&) noexcept;

  /// The languages that the text may be of, the likeliest one first; none if nothing can be said. Threads may ask at
  /// the same time.
  std::vector<std::string> candidates(std::string_view text) const;

 private:
  struct Classifiers;
  std::vector<std::string> languages_;
  std::unique_ptr<Classifiers> classifiers_;
};

}  // namespace heddle
