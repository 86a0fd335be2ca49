#include "app/cli/dump_file.h"

#include <nlohmann/json.hpp>

#include "app/core/size_text.h"
#include "engine/generate/trace.h"
#include "engine/support/file.h"

namespace terrace::cli {

namespace {

constexpr std::int64_t kLargestDump = std::int64_t{2} << 30;

const char* typeName(TraceArray::Type type) {
    switch (type) {
        case TraceArray::Type::F32:
            return "F32";
        case TraceArray::Type::I32:
            return "I32";
        case TraceArray::Type::U8:
            return "U8";
    }
    return "U8";
}

std::string headerOf(const std::vector<TraceArray>& arrays) {
    nlohmann::ordered_json header;
    std::size_t offset = 0;
    for (const TraceArray& array : arrays) {
        header[array.name] = {{"dtype", typeName(array.type)},
                              {"shape", array.shape},
                              {"data_offsets", {offset, offset + array.bytes.size()}}};
        offset += array.bytes.size();
    }
    std::string text = header.dump();
    text.resize((text.size() + 7) / 8 * 8, ' ');
    return text;
}

}  // namespace

Status writeDump(Engine& engine,
                 const SamplingSettings& sampling,
                 std::span<const std::int32_t> tokens,
                 const std::string& path,
                 std::stop_token stop) {
    Decoder& decoder = engine.decoder();
    const auto n = static_cast<std::int64_t>(tokens.size());
    const std::int64_t bytes = trace_bytes(decoder.config(), n);
    if (bytes > kLargestDump) {
        return Error{ErrorCode::TooLarge,
                     "the dump of " + std::to_string(n) + " positions would need " +
                         app::formatSize(bytes) + "; the limit is " + app::formatSize(kLargestDump),
                     path, "Use a shorter prompt or a smaller model"};
    }
    if (n > decoder.context()) {
        return Error{ErrorCode::TooLarge,
                     "the dump has " + std::to_string(n) + " positions and the context holds " +
                         std::to_string(decoder.context()),
                     path, "Choose a larger context (--context)"};
    }
    Sampler sampler(sampling, engine.session().candidates());
    const std::int64_t depth = std::max<std::int64_t>(engine.plan().draft_depth, 1);
    engine.session().reset();
    Result<std::vector<TraceArray>> arrays =
        trace_tokens(decoder, sampler, {tokens, engine.plan().chunk_rows, depth}, std::move(stop));
    if (!arrays) {
        return std::move(arrays).error();
    }
    Result<AtomicFile> file = AtomicFile::create(path);
    if (!file) {
        return std::move(file).error();
    }
    const std::string header = headerOf(*arrays);
    const std::uint64_t length = header.size();
    Status status = file->write(std::as_bytes(std::span(&length, 1)));
    if (status) {
        status = file->write(std::as_bytes(std::span(header)));
    }
    for (const TraceArray& array : *arrays) {
        if (status) {
            status = file->write(array.bytes);
        }
    }
    return status ? file->commit() : status;
}

}  // namespace terrace::cli
