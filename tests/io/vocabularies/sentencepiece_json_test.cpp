#include <boost/json.hpp>
#include <heddle/io/tokenizers/tokenizer.hpp>
#include <heddle/io/vocabularies/tokenizer_json.hpp>

#include "learnt_tokenizer.hpp"
#include "test.hpp"

namespace heddle {
namespace {

namespace json = boost::json;

Tokenizer trained(std::string const& type) {
  std::string text;
  for (int number = 0; number < 200; ++number) {
    text += "the number " + std::to_string(number * 7919) + " of them\n";
  }
  TokenizerTraining training;
  training.type = type;
  training.vocabulary_size = 40;
  training.symbols = {"<>", "<?>", "<2de>"};
  return learn_tokenizer(text, training);
}

TEST(SentencePieceJson, HasThePiecesWithTheirIdsAndTheEndAfterATextOfAnEncoder) {
  Tokenizer const tokenizer = trained("bpe");
  json::value const made = json::parse(tokenizer_json_of(tokenizer, true));
  json::object const& vocabulary = made.at_pointer("/model/vocab").as_object();
  ASSERT_EQ(std::ssize(vocabulary), tokenizer.size());
  for (std::int32_t id = 0; id < tokenizer.size(); ++id) {
    EXPECT_EQ(vocabulary.at(tokenizer.piece(id)), id);
  }
  EXPECT_EQ(made.at_pointer("/model/merges/0").as_array().size(), 2U);
  EXPECT_EQ(made.at_pointer("/post_processor/single/1/SpecialToken/id"), "</s>");
  EXPECT_EQ(made.at_pointer("/added_tokens").as_array().size(), 4U);
  EXPECT_EQ(made.at_pointer("/normalizer/normalizers/0/type"), "Precompiled");
  EXPECT_EQ(made.at_pointer("/pre_tokenizer/pretokenizers/0/prepend_scheme"), "always");
  EXPECT_EQ(made.at_pointer("/pre_tokenizer/pretokenizers/1/pattern/Regex"), R"(<2de>|<\?>|<>)");
  EXPECT_EQ(made.at_pointer("/pre_tokenizer/pretokenizers").as_array().size(), 2U) << "one step for all symbols";
}

TEST(SentencePieceJson, OfAUnigramModelSpecialPiecesAreNeverChosen) {
  Tokenizer const tokenizer = trained("unigram");
  json::value const made = json::parse(tokenizer_json_of(tokenizer, false));
  json::array const& vocabulary = made.at_pointer("/model/vocab").as_array();
  ASSERT_EQ(std::ssize(vocabulary), tokenizer.size());
  EXPECT_EQ(made.at_pointer("/model/unk_id"), tokenizer.special_ids().unknown);
  EXPECT_LT(vocabulary.at(static_cast<std::size_t>(tokenizer.special_ids().end)).at(1).as_double(), -1e5);
  EXPECT_GT(vocabulary.back().at(1).as_double(), -1e5);
  EXPECT_EQ(made.at_pointer("/post_processor/single/0/SpecialToken/id"), "<s>");
}

}  // namespace
}  // namespace heddle
