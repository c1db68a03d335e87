"""Twenty sentence pairs that several tests use."""

PAIRS = [
    ("I like cats.", "我喜欢猫。"),
    ("I like dogs.", "我喜欢狗。"),
    ("You like cats.", "你喜欢猫。"),
    ("You like dogs.", "你喜欢狗。"),
    ("The weather is nice today.", "今天天气很好。"),
    ("Let us go to the park.", "我们去公园吧。"),
    ("Hello, world!", "你好，世界！"),
    ("The price is 3.5 dollars.", "价格是3.5美元。"),
    ("He bought a phone.", "他买了一部手机。"),
    ("This kitten is very cute.", "这只小猫非常可爱。"),
    ("Where is the library?", "图书馆在哪里？"),
    ("I do not know.", "我不知道。"),
    ("Learning is fun.", "学习很有意思。"),
    ("See you tomorrow.", "明天见。"),
    ("She is my teacher.", "她是我的老师。"),
    ("He is my friend.", "他是我的朋友。"),
    ("Thank you very much.", "非常感谢你。"),
    ("Good morning.", "早上好。"),
    ("What is your name?", "你叫什么名字？"),
    ("I want to drink water.", "我想喝水。"),
]
