#include <fmt/format.h>
#include <textcat.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <heddle/core/base/error.hpp>
#include <iterator>
#include <mutex>

#include "cleaning/language/language_models.hpp"

namespace heddle {
namespace {

constexpr char const* directory = HEDDLE_TEXTCAT_DIRECTORY "/";

/// A classifier, which one thread may use at a time.
class Classifier {
 public:
  explicit Classifier(std::vector<std::string> const& languages) {
    std::string list;  // the library reads a file
    for (std::size_t index = 0; index < languages.size(); ++index) {
      list += fmt::format("{}.lm {}\n", languages[index], index);
    }
    auto const close = [](std::FILE* file) { std::fclose(file); };
    std::unique_ptr<std::FILE, decltype(close)> const file(std::tmpfile(), close);
    if (!file || std::fputs(list.c_str(), file.get()) < 0 || std::fflush(file.get()) != 0) {
      throw Error("the list of languages for libexttextcat cannot be written into a temporary file: {}",
                  std::strerror(errno));
    }
    handle_.reset(::special_textcat_Init(fmt::format("/proc/self/fd/{}", ::fileno(file.get())).c_str(), directory));
    if (!handle_) {
      throw Error("libexttextcat cannot read its models in {}", directory);
    }
    // The library refuses texts of fewer bytes: the rule itself has a limit of letters.
    ::textcat_SetProperty(handle_.get(), TCPROP_MINIMUM_DOCUMENT_SIZE, 1);
    found_ = ::textcat_GetClassifyFullOutput(handle_.get());
  }
  ~Classifier() { ::textcat_ReleaseClassifyFullOutput(handle_.get(), found_); }
  Classifier(Classifier const&) = delete;
  Classifier& operator=(Classifier const&) = delete;

  /// The indices of the candidates, the best first.
  std::vector<std::size_t> classify(std::string_view text) {
    int const count = std::max(0, ::textcat_ClassifyFull(handle_.get(), text.data(), text.size(), found_));
    std::vector<candidate_t> best(found_, found_ + count);
    std::ranges::stable_sort(best, {}, &candidate_t::score);
    std::vector<std::size_t> indices;
    std::ranges::transform(best, std::back_inserter(indices),
                           [](candidate_t const& one) { return std::stoul(one.name); });
    return indices;
  }

 private:
  struct Done {
    void operator()(void* handle) const { ::textcat_Done(handle); }
  };
  std::unique_ptr<void, Done> handle_;
  candidate_t* found_ = nullptr;
};

}  // namespace

/// Classifiers that no thread uses now.
struct LanguageModels::Classifiers {
  std::mutex mutex;
  std::vector<std::unique_ptr<Classifier>> free;
};

std::string LanguageModels::unsupported_reason() {
  std::error_code unknown;
  return std::filesystem::is_directory(directory, unknown)
             ? ""
             : fmt::format("{} is not there, where libexttextcat has its models (Debian: libexttextcat-data)",
                           directory);
}

std::vector<std::string> LanguageModels::known() {
  std::vector<std::string> languages;
  for (auto const& file : std::filesystem::directory_iterator(directory)) {
    if (file.path().extension() == ".lm") {
      languages.push_back(file.path().stem());
    }
  }
  std::ranges::sort(languages);
  return languages;
}

LanguageModels::LanguageModels(std::vector<std::string> languages)
    : languages_(std::move(languages)), classifiers_(std::make_unique<Classifiers>()) {
  classifiers_->free.push_back(std::make_unique<Classifier>(languages_));
}
LanguageModels::~LanguageModels() = default;
LanguageModels::LanguageModels(LanguageModels&&) noexcept = default;
LanguageModels& LanguageModels::operator=(LanguageModels&&) noexcept = default;

std::vector<std::string> LanguageModels::candidates(std::string_view text) const {
  std::unique_ptr<Classifier> classifier;
  {
    std::scoped_lock const lock(classifiers_->mutex);
    if (!classifiers_->free.empty()) {
      classifier = std::move(classifiers_->free.back());
      classifiers_->free.pop_back();
    }
  }
  if (!classifier) {
    classifier = std::make_unique<Classifier>(languages_);
  }
  std::vector<std::string> names;
  for (std::size_t const index : classifier->classify(text)) {
    names.push_back(languages_[index]);
  }
  std::scoped_lock const lock(classifiers_->mutex);
  classifiers_->free.push_back(std::move(classifier));
  return names;
}

}  // namespace heddle
