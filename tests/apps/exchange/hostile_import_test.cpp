#include <boost/json.hpp>
#include <cstring>
#include <heddle/core/tensor/execution.hpp>

#include "exchange/importing.hpp"
#include "kernel_test_support.hpp"

namespace heddle {
namespace {

namespace json = boost::json;

/// Files of other systems that are forged, and the message by which they are refused. tests/torture/apps has more.
class HostileImportTest : public KernelTest {
 protected:
  HostileImportTest() { fs::copy(fs::path(HEDDLE_TEST_DATA) / "exchange" / "marian", model_); }

  /// The message with which `model` is refused; nothing may be left of the run.
  template <class Expected>
  std::string refusal(fs::path const& model) {
    std::string message = message_of<Expected>([&] { import_model(execution_, model, directory_ / "new" / "run"); });
    EXPECT_FALSE(fs::exists(directory_ / "new")) << message;
    return message;
  }

  void set_key(std::string const& key, json::value const& value) const {
    json::value config = json::parse(read_whole(model_ / "config.json"));
    config.as_object()[key] = value;
    write("config.json", json::serialize(config));
  }
  void write(std::string const& file, std::string const& bytes) const {
    fs::remove(model_ / file);
    std::ofstream(model_ / file, std::ios::binary) << bytes;
  }

  TemporaryDirectory directory_;
  fs::path const model_ = directory_ / "model";
};

TEST_F(HostileImportTest, ValuesThatAreNotFiniteLeaveNoRun) {
  std::string bytes = read_whole(model_ / "model.safetensors");
  float const infinite = std::numeric_limits<float>::infinity();
  std::memcpy(bytes.data() + bytes.size() - sizeof infinite, &infinite, sizeof infinite);
  write("model.safetensors", bytes);
  expect_contains(refusal<DataError>(model_), "inf at element");
}

TEST_F(HostileImportTest, AProbeThatIsNotFiniteLeavesNoRun) {
  std::string bytes = read_whole(model_ / "model.safetensors");
  for (std::size_t at = bytes.size() - 512; at < bytes.size(); at += sizeof(float)) {
    float const large = std::numeric_limits<float>::max();
    std::memcpy(bytes.data() + at, &large, sizeof large);
  }
  write("model.safetensors", bytes);
  expect_data_error([&] { import_model(execution_, model_, directory_ / "new" / "run", {.probe = true}); },
                    "logits for a few random tokens are not finite");
  EXPECT_FALSE(fs::exists(directory_ / "new"));
}

TEST_F(HostileImportTest, TensorsOfIntegersLeaveNoRun) {
  std::string bytes = read_whole(model_ / "model.safetensors");
  for (std::size_t at = 0; (at = bytes.find("\"F32\"", at)) != std::string::npos;) {
    bytes.replace(at, 5, "\"I32\"");
  }
  write("model.safetensors", bytes);
  expect_contains(refusal<DataError>(model_), "is of dtype i32");
}

TEST_F(HostileImportTest, PositionsThatNeedAnyMemoryAreRefusedByKey) {
  set_key("max_position_embeddings", 1 << 20);
  set_key("d_model", 1 << 20);
  ImportOptions options{
      .overrides = {"train.batch_tokens=1048576", "train.micro_batch_tokens=1048576", "model.heads=1"}};
  expect_config_error([&] { import_model(execution_, model_, directory_ / "run", options); },
                      "model.max_length = 1048576: with 1048576 columns the table");
}

TEST_F(HostileImportTest, ThousandsOfLayersWithoutTensorsAreRefusedAtOnce) {
  set_key("encoder_layers", 4096);
  expect_contains(refusal<DataError>(model_), "config.json gives the model 4097 layers; its files have 44");
}

TEST_F(HostileImportTest, ADirectoryOfCTranslate2IsCalledSo) {
  write("config.json", R"({"add_source_bos": false, "layer_norm_epsilon": null})");
  write("model.bin", "x");
  write("shared_vocabulary.json", "[]");
  expect_contains(refusal<DataError>(model_), "is a model of CTranslate2 (model.bin)");
}

TEST_F(HostileImportTest, LinksOfTheHubsCacheAreExplained) {
  fs::rename(model_ / "config.json", directory_ / "blob");
  fs::create_symlink(directory_ / "blob", model_ / "config.json");
  expect_contains(refusal<DataError>(model_), "cp -rL");
}

TEST_F(HostileImportTest, WhatIsInTheRunAlreadyStays) {
  fs::create_directory(directory_ / "run");
  std::ofstream(directory_ / "run" / "note") << "mine";
  write("model.safetensors", read_whole(model_ / "model.safetensors").substr(0, 9000));
  EXPECT_NE(message_of<DataError>([&] { import_model(execution_, model_, directory_ / "run"); }), "");
  EXPECT_TRUE(fs::exists(directory_ / "run" / "note"));
  EXPECT_FALSE(fs::exists(directory_ / "run" / "checkpoints"));
}

TEST_F(HostileImportTest, ErrorsOfLibrariesAreAboutTheModel) {
  expect_contains(refusal<DataError>(directory_ / "nowhere" / "model.npz"), "nowhere");
  write("config.json", R"({"model_type": "marian", "vocab_size": )" + std::string(100'000, '['));
  expect_contains(refusal<DataError>(model_), "config.json: is not JSON at byte");
  write("config.json", R"({"model_type": "marian"})");
  expect_contains(refusal<DataError>(model_), "vocab_size is missing");
}

TEST_F(HostileImportTest, AProbeIsMadeOnlyIfItIsAskedFor) {
  EXPECT_FALSE(import_model(execution_, model_, directory_ / "without").largest_logit);
  EXPECT_GT(import_model(execution_, model_, directory_ / "with", {.probe = true}).largest_logit, 0);
}

}  // namespace
}  // namespace heddle
